#include "wire/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "wire/attached.h"
#include "wire/border.h"
#include "wire/clock.h"
#include "wire/gates.h"
#include "wire/header.h"
#include "wire/identity.h"
#include "wire/owner.h"
#include "wire/shared_segment.h"
#include "wire/sleep.h"

// A process may be killed between any two stores: tests define this to be killed at each place in turn.
#ifndef FAULT_POINT
#define FAULT_POINT()
#endif

namespace wire {

namespace {

std::string because(const char* what, const char* path) {
    return std::string(what) + " " + path + ": " + strerror(errno);
}

Segment* map(int fd) {
    Segment* segment = reserve_segment();
    if (!segment) return nullptr;
    if (mmap(segment, segment_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED)
        return segment;
    munmap(segment, mapped_bytes());
    return nullptr;
}

// A new segment appears under its name only when it is complete: written beside it, then linked.
bool create(const char* path, std::string* why) {
    // Processes of two containers may have one PID, and make it at once.
    std::string beside = std::string(path) + ".new." + std::to_string(getpid()) + "." + std::to_string(now_ns());
    int fd = ::open(beside.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        *why = because("cannot create", path);
        return false;
    }
    bool done = false;
    // posix_fallocate, not ftruncate: a full disk is an error here, not a SIGBUS in the guest.
    if (int error = posix_fallocate(fd, 0, segment_bytes())) {
        errno = error;
        *why = because("no space for", path);
    } else if (Segment* segment = map(fd)) {
        begin_header(segment->header);
        done = ::link(beside.c_str(), path) == 0 || errno == EEXIST;
        if (!done) *why = because("cannot create", path);
        munmap(segment, mapped_bytes());
    } else {
        *why = because("cannot map", path);
    }
    ::close(fd);
    ::unlink(beside.c_str());
    return done;
}

void leave_classes(Segment& segment, int index) {
    for (auto& members : members_of(segment)) members[index / 64].fetch_and(~(uint64_t{1} << (index % 64)));
}

// In two classes for a moment rather than in none: a reader that sums up the memory of a run finds its processes here.
void enter_class(Segment& segment, int index, uint32_t tenant_class) {
    uint64_t mask = uint64_t{1} << (index % 64);
    auto& own = members_of(segment)[tenant_class][index / 64];
    if (!(own.load() & mask)) own.fetch_or(mask);
    FAULT_POINT();
    for (uint32_t other = 0; other < kClasses; ++other) {
        auto& words = members_of(segment)[other][index / 64];
        if (other != tenant_class && words.load() & mask) words.fetch_and(~mask);
    }
}

void sign(Segment& segment, int index) {
    Slot& slot = segment.slot(index);
    slot.uid = getuid();
    write_identity(slot, attached(segment).self);
    slot.heartbeat_ns.store(now_ns());
}

// Everything a slot's next owner must not inherit. The caller has the slot's owner word.
void clear(Segment& segment, int index) {
    Slot& slot = segment.slot(index);
    leave_classes(segment, index);
    FAULT_POINT();
    for (int gpu = 0; gpu < kGpus; ++gpu)
        if (slot.gpus[gpu].busy.load()) go_idle(segment, index, gpu);
    FAULT_POINT();
    // All but the owner and its sign of life: a new owner has shown itself before.
    char *begin = reinterpret_cast<char*>(&slot), *beat = reinterpret_cast<char*>(&slot.heartbeat_ns);
    memset(begin + sizeof slot.owner, 0, static_cast<size_t>(beat - begin) - sizeof slot.owner);
    memset(beat + sizeof slot.heartbeat_ns, 0,
           sizeof slot - static_cast<size_t>(beat - begin) - sizeof slot.heartbeat_ns);
    FAULT_POINT();
    // The leaving owner's streams may still wait here: they must drain.
    for (OnGpu& gpu : slot.gpus) gpu.gate.store(kGateOpen);
    for (Flag& gate : slot.copy_gates) gate.store(kGateOpen);
}

int take_free_slot(Segment& segment) {
    for (int i = 0; i < kSlots; ++i) {
        Slot& slot = segment.slot(i);
        if (is_live(slot)) continue;
        // Before it is taken: a live slot that is not signed and has no fresh heartbeat can be taken by any process.
        slot.heartbeat_ns.store(now_ns());
        FAULT_POINT();
        if (take_owner(attached(segment).hold, slot.owner)) return i;
    }
    return -1;
}

bool is_folder(const char* path) {
    struct stat about;
    return lstat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

}  // namespace

Segment* open_segment(const char* path, std::string* why) {
    if (is_folder(path)) return open_shared_segment(path, why);
    int fd = ::open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        *why = because("cannot open", path);
        return nullptr;
    }
    struct stat about;
    Segment* segment = nullptr;
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode) || about.st_size < static_cast<off_t>(sizeof(Header))) {
        *why = std::string(path) + " is not a Cotenant segment";
    } else if (about.st_uid != geteuid() && about.st_uid != 0) {
        *why = std::string(path) + " belongs to another user";
    } else {
        Header header_bytes;
        char* raw = reinterpret_cast<char*>(&header_bytes);
        if (pread(fd, raw, sizeof header_bytes, 0) != static_cast<ssize_t>(sizeof header_bytes) ||
            memcmp(header_bytes.magic, kMagic, sizeof kMagic) != 0) {
            *why = std::string(path) + " is not a Cotenant segment";
        } else if (!is_ours(header_bytes, path, why)) {
        } else if (about.st_size != static_cast<off_t>(segment_bytes())) {
            *why = std::string(path) + " is not a Cotenant segment";
        } else if (!(segment = map(fd))) {
            *why = because("cannot map", path);
        }
    }
    ::close(fd);
    return segment;
}

Segment* create_or_open_segment(const char* path, std::string* why) {
    if (access(path, F_OK) != 0 && !create(path, why)) return nullptr;
    return open_segment(path, why);
}

void close_segment(Segment* segment) {
    if (segment) munmap(segment, mapped_bytes());
}

int take_slot(Segment& segment, Self signer) {
    attached(segment).self = own_identity(signer);
    auto begin = [](Segment& where, int index) {
        FAULT_POINT();
        clear(where, index);
        FAULT_POINT();
        sign(where, index);
    };
    if (is_shared(segment)) return take_shared_slot(segment, begin);
    int index = take_free_slot(segment);
    if (index >= 0) begin(segment, index);
    return index;
}

bool keep_slot(Segment& segment, int index) {
    Slot& slot = segment.slot(index);
    Identity self = attached(segment).self, there;
    bool is_signed = read_identity(slot, &there);
    if (!keep_owner(slot.owner)) {
        // Somebody has freed it meanwhile, and another has come in. Else the word is garbage.
        if (is_signed && !(there == self) && !is_gone(there)) return false;
        seize_owner(slot.owner);
    }
    if (!is_signed || !(there == self)) sign(segment, index);
    enter_class(segment, index, class_of(slot));
    return true;
}

void leave_slot(Segment& segment, int index) {
    clear(segment, index);
    FAULT_POINT();
    if (is_shared(segment)) leave_shared_slot(segment, index);
    FAULT_POINT();
    leave_owner(attached(segment).hold, segment.slot(index).owner);
}

int reap_slots(Segment& segment) {
    if (is_shared(segment)) return look_around(segment);
    int reaped = 0;
    for (int i = 0; i < kSlots; ++i) {
        Flag& owner = segment.slot(i).owner;
        uint32_t seen = owner.load();
        if (seen == 0 || (is_live(seen) && !is_abandoned(segment.slot(i)))) continue;
        Reaping reaping(attached(segment).hold, owner, seen);
        if (!reaping) continue;
        FAULT_POINT();
        clear(segment, i);
        FAULT_POINT();
        ++reaped;
    }
    return reaped;
}

int gpu_number(Segment& segment, const uint8_t uuid[16]) {
    for (int i = 0; i < kGpus; ++i) {
        Header::Gpu& gpu = segment.header.gpus[i];
        uint32_t free_entry = gpu.known.load();
        if (is_shared(segment)) {
            if (gpu.known.load() == kGpuValid && memcmp(gpu.uuid, uuid, sizeof gpu.uuid) == 0) return i;
            continue;
        }
        bool is_free = free_entry == 0 || free_entry > kGpuLost;
        if (is_free && gpu.known.compare_exchange_strong(free_entry, 1)) {
            FAULT_POINT();
            memcpy(gpu.uuid, uuid, sizeof gpu.uuid);
            uint32_t written = 1;
            if (gpu.known.compare_exchange_strong(written, kGpuValid)) return i;
            continue;
        }
        for (int tries = 0; gpu.known.load() == 1 && tries < 100; ++tries) nap(10000);
        // Given up once, for all: nobody else waits for it, and its writer, if it lives, finds the GPU where others
        // have put it. 15 entries remain.
        uint32_t unfinished = 1;
        gpu.known.compare_exchange_strong(unfinished, kGpuLost);
        if (gpu.known.load() == kGpuValid && memcmp(gpu.uuid, uuid, sizeof gpu.uuid) == 0) return i;
    }
    return -1;
}

void join_class(Segment& segment, int index, Class wanted) {
    uint32_t tenant_class = std::max<uint32_t>(wanted, best_class_of_own(segment));
    segment.slot(index).tenant_class.store(tenant_class);
    FAULT_POINT();
    enter_class(segment, index, tenant_class);
    for (int gpu = 0; gpu < kGpus; ++gpu) refresh_gate(segment, index, gpu);
}

void members(Segment& segment, uint64_t words[kSlotWords]) {
    for (int word = 0; word < kSlotWords; ++word) {
        words[word] = 0;
        for (auto& of_class : members_of(segment)) words[word] |= of_class[word].load();
    }
}

uint32_t best_class_of_own(Segment& segment) {
    Attached& here = attached(segment);
    uint32_t granted = is_shared(segment) ? best_class(segment, here.uid, here.gid) : production;
    return std::max(granted, here.highest_class);
}

}  // namespace wire
