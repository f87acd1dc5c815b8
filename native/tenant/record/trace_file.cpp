#include "tenant/record/trace_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "wire/clock.h"

namespace tenant {

namespace {

constexpr char kMagic[8] = {'c', 'o', 't', 'r', 'a', 'c', 'e', 0};
constexpr char kBlockMagic[4] = {'B', 'L', 'K', '1'};
constexpr uint32_t kVersion = 1;
constexpr uint32_t kHeaderBytes = 40;
constexpr uint32_t kShortestCopy = 4;

// The usual CRC-32, four bits at a time.
uint32_t checksum(const uint8_t* bytes, size_t count) {
    constexpr uint32_t kNibbles[16] = {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
                                       0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
                                       0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
    uint32_t sum = ~0u;
    for (size_t i = 0; i < count; ++i) {
        sum = kNibbles[(sum ^ bytes[i]) & 15] ^ sum >> 4;
        sum = kNibbles[(sum ^ bytes[i] >> 4) & 15] ^ sum >> 4;
    }
    return ~sum;
}

uint64_t clock_ns(clockid_t clock) {
    timespec now;
    clock_gettime(clock, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

uint32_t hash(uint64_t value, uint32_t places) {
    return static_cast<uint32_t>(value * 0x9e3779b97f4a7c15u >> 32) & (places - 1);
}

}  // namespace

void Bytes::varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) byte(static_cast<uint8_t>(value | 0x80));
    byte(static_cast<uint8_t>(value));
}

uint64_t GapCode::meaning(uint8_t code) {
    if (code == 0) return 0;
    int step = code - 1;
    return static_cast<uint64_t>(16 + (step & 15)) << (step >> 4);
}

uint8_t GapCode::of(uint64_t ns) {
    if (ns < 16) return ns < 8 ? 0 : 1;
    if (ns >= kLongFromNs) return kLong;
    int exponent = 59 - __builtin_clzll(ns);  // ns >> exponent is between 16 and 31
    uint64_t digits = ns >> exponent;
    if (exponent > 0) digits += ns >> (exponent - 1) & 1;  // to the nearest; 32 is the first of the next power
    return static_cast<uint8_t>(1 + exponent * 16 + static_cast<int>(digits - 16));
}

uint16_t OperationCoder::word_of(const TraceOperation& operation) {
    uint64_t mixed = operation.bytes;
    for (uint64_t part : {uint64_t{operation.shape}, uint64_t{operation.stream} << 16 | operation.thread,
                          uint64_t{operation.overlaps} << 17 | uint64_t{operation.wait_ns != 0} << 16 |
                              static_cast<uint64_t>(operation.kind) << 8 | static_cast<uint64_t>(operation.direction)})
        mixed = (mixed ^ part) * 0xff51afd7ed558ccdu ^ mixed >> 31;
    for (uint32_t place = hash(mixed, kPlaces);; place = (place + 1) % kPlaces) {
        uint32_t word = word_places_[place];
        if (word == 0) {
            word_places_[place] = word_count_ + 1;
            return static_cast<uint16_t>(word_count_++);
        }
        if (operations_[first_of_word_[word - 1]].is_like(operation)) return static_cast<uint16_t>(word - 1);
    }
}

void OperationCoder::write_words(Bytes& out) {
    out.varint(word_count_);
    for (uint32_t i = 0; i < word_count_; ++i) {
        const TraceOperation& word = operations_[first_of_word_[i]];
        out.byte(static_cast<uint8_t>(word.kind));
        out.byte(
            static_cast<uint8_t>((word.wait_ns != 0) | word.overlaps << 1 | static_cast<int>(word.direction) << 2));
        out.varint(word.shape);
        out.varint(word.stream);
        out.varint(word.thread);
        out.varint(word.bytes);
    }
}

// Words that came in this order before are a length and how far back; others stand as they are.
void OperationCoder::write_order(Bytes& out) {
    auto hash_at = [&](uint32_t at) {
        uint64_t four = 0;
        memcpy(&four, &words_[at], sizeof four);
        return hash(four ^ four >> 29, kPlaces);
    };
    memset(last_seen_, 0, sizeof last_seen_);
    uint32_t literals_from = 0;
    auto literals = [&](uint32_t to) {
        out.varint(to - literals_from);
        for (uint32_t i = literals_from; i < to; ++i) out.varint(words_[i]);
    };
    uint32_t at = 0;
    while (at + kShortestCopy <= count_) {
        uint32_t& seen = last_seen_[hash_at(at)];
        uint32_t from = seen;
        seen = at + 1;
        uint32_t length = 0;
        if (from)
            while (at + length < count_ && words_[from - 1 + length] == words_[at + length]) ++length;
        if (length < kShortestCopy) {
            ++at;
            continue;
        }
        literals(at);
        out.varint(length);
        out.varint(at + 1 - from);
        for (uint32_t end = at + length; ++at < end;)
            if (at + kShortestCopy <= count_) last_seen_[hash_at(at)] = at + 1;
        literals_from = at;
    }
    if (literals_from < count_) {
        literals(count_);
        out.varint(0);
    }
}

// The time between each call's return and the next call. Told from where the reader will have come to, so that errors
// do not add up. Answers with where the reader begins.
uint64_t OperationCoder::find_gaps(uint64_t epoch_ns) {
    auto in_full = [](uint64_t ns) { return ns / GapCode::kUnitNs * GapCode::kUnitNs; };
    uint64_t base_ns = std::max(operations_[0].time_ns - operations_[0].wait_ns, epoch_ns);
    uint64_t reached_ns = base_ns;
    for (uint32_t i = 0; i < count_; ++i) {
        TraceOperation& operation = operations_[i];
        uint64_t passed_ns = operation.time_ns > reached_ns ? operation.time_ns - reached_ns : 0;
        if (operation.wait_ns) operation.wait_ns = std::max(in_full(operation.wait_ns), GapCode::kUnitNs);
        operation.overlaps = operation.wait_ns > passed_ns + GapCode::kUnitNs;
        uint64_t waited_ns = operation.overlaps ? 0 : operation.wait_ns;
        gaps_ns_[i] = passed_ns > waited_ns ? passed_ns - waited_ns : 0;
        uint8_t code = GapCode::of(gaps_ns_[i]);
        reached_ns += waited_ns + (code == GapCode::kLong ? in_full(gaps_ns_[i]) : GapCode::meaning(code));
    }
    return base_ns;
}

void OperationCoder::write(Bytes& out, uint64_t epoch_ns) {
    out.varint(find_gaps(epoch_ns) - epoch_ns);
    out.varint(count_);
    word_count_ = 0;
    memset(word_places_, 0, sizeof word_places_);
    for (uint32_t i = 0; i < count_; ++i) {
        uint32_t known = word_count_;
        words_[i] = word_of(operations_[i]);
        if (word_count_ > known) first_of_word_[known] = i;
    }
    write_words(out);
    write_order(out);
    for (uint32_t i = 0; i < count_; ++i) out.byte(GapCode::of(gaps_ns_[i]));
    for (uint32_t i = 0; i < count_; ++i)
        if (GapCode::of(gaps_ns_[i]) == GapCode::kLong) out.varint(gaps_ns_[i] / GapCode::kUnitNs);
    for (uint32_t i = 0; i < count_; ++i)
        if (operations_[i].wait_ns) out.varint(operations_[i].wait_ns / GapCode::kUnitNs);
    count_ = 0;
}

bool TraceFile::create(const char* path) {
    char folder[sizeof path_ / 2] = "";
    if (*path != '/' && !getcwd(folder, sizeof folder)) return false;
    int length = snprintf(path_, sizeof path_ - 16, "%s%s%s", folder, *folder ? "/" : "", path);
    if (length >= static_cast<int>(sizeof path_) - 16) {
        errno = ENAMETOOLONG;
        return false;
    }
    int fd = open(path_, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0 && errno == EEXIST) {
        snprintf(path_ + length, sizeof path_ - length, ".%d", getpid());
        fd = open(path_, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    }
    if (fd < 0) return false;
    struct stat about;
    bool known = fstat(fd, &about) == 0;
    close(fd);
    if (!known) return false;
    device_ = about.st_dev;
    inode_ = about.st_ino;
    epoch_ns_ = wire::now_ns();  // as the operations have it, whatever the time namespace
    framed_.clear();
    framed_.add(kMagic, sizeof kMagic);
    framed_.fixed(kVersion, 4);
    framed_.fixed(kHeaderBytes, 4);
    framed_.fixed(clock_ns(CLOCK_REALTIME), 8);
    framed_.fixed(epoch_ns_, 8);
    framed_.fixed(static_cast<uint64_t>(getpid()), 4);
    framed_.fixed(checksum(framed_.data(), framed_.size()), 4);
    return append(framed_);
}

bool TraceFile::append_block(const Bytes& payload) {
    framed_.clear();
    framed_.add(kBlockMagic, sizeof kBlockMagic);
    framed_.fixed(payload.size(), 4);
    framed_.fixed(checksum(payload.data(), payload.size()), 4);
    framed_.add(payload.data(), payload.size());
    return append(framed_);
}

// Opened anew each time: a program may close descriptors that it does not know, and reuse their numbers.
bool TraceFile::append(const Bytes& bytes) {
    if (bytes.failed()) {
        errno = ENOMEM;
        return false;
    }
    int fd = open(path_, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0) return false;
    struct stat about;
    int why = 0;
    if (fstat(fd, &about) != 0)
        why = errno;
    else if (about.st_dev != device_ || about.st_ino != inode_ || static_cast<uint64_t>(about.st_size) != size_)
        why = ESTALE;
    size_t written = 0;
    while (!why && written < bytes.size()) {
        ssize_t some = write(fd, bytes.data() + written, bytes.size() - written);
        if (some > 0)
            written += static_cast<size_t>(some);
        else if (errno != EINTR)
            why = some == 0 ? ENOSPC : errno;
    }
    if (why && written && ftruncate(fd, static_cast<off_t>(size_)) != 0) size_ += written;  // the reader stops there
    if (!why) size_ += written;
    close(fd);
    errno = why;
    return why == 0;
}

}  // namespace tenant
