#include "wire/shared_segment.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "wire/segment.h"

#ifndef FAULT_POINT
#define FAULT_POINT()
#endif
#ifndef COTENANT_SHARED_SEGMENT
#define COTENANT_SHARED_SEGMENT "/dev/shm/cotenant.shared"
#endif

namespace wire {

namespace {

constexpr int kMostNames = 4 * kSlots;         // in the slots' folder; whoever puts more there makes nobody read them
constexpr uint64_t kLongestPauseNs = 1000000;  // between looks, also after one that was held up
constexpr int kReadOnly = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;

// A launching thread may come here: nothing of it may be seen, and cancelling it must not leave the lock held.
class Looking {
 public:
    explicit Looking(Attached& here) : here_(here), errno_(errno) {
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state_);
        // In a forked child the lock may be held by a thread that is not there.
        if (pid_t self = getpid(); here_.process.exchange(self) != self) pthread_mutex_init(&here_.lock, nullptr);
        pthread_mutex_lock(&here_.lock);
    }
    ~Looking() {
        pthread_mutex_unlock(&here_.lock);
        pthread_setcancelstate(cancel_state_, nullptr);
        errno = errno_;
    }
    Looking(const Looking&) = delete;
    Looking& operator=(const Looking&) = delete;

 private:
    Attached& here_;
    int errno_, cancel_state_ = 0;
};

class File {
 public:
    explicit File(int fd) : fd(fd) {}
    ~File() {
        if (fd >= 0) ::close(fd);
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;

    const int fd;
};

struct Path {
    char text[sizeof(Attached::folder) + 64];
};

Path slots_folder(const Attached& here) {
    Path path;
    snprintf(path.text, sizeof path.text, "%s/slots", here.folder);
    return path;
}

Path slot_file(const Attached& here, int index) {
    Path path;
    snprintf(path.text, sizeof path.text, "%s/slots/%d", here.folder, index);
    return path;
}

std::string problem(const std::string& what, const char* path) { return what + " " + path + ": " + strerror(errno); }

bool bit(const uint64_t* words, int index) { return words[index / 64] >> (index % 64) & 1; }
void set_bit(uint64_t* words, int index) { words[index / 64] |= uint64_t{1} << (index % 64); }
void clear_bit(uint64_t* words, int index) { words[index / 64] &= ~(uint64_t{1} << (index % 64)); }

bool is_slot_file(const struct stat& about) {
    return S_ISREG(about.st_mode) && about.st_size == static_cast<off_t>(page_bytes());
}

// Into this class and no other; beyond the last: into none. A reader never finds a member in no class meanwhile.
void enter(Attached& here, int index, uint32_t tenant_class) {
    uint64_t mask = uint64_t{1} << (index % 64);
    if (tenant_class < kClasses) here.members[tenant_class][index / 64].fetch_or(mask);
    for (uint32_t other = 0; other < kClasses; ++other)
        if (other != tenant_class) here.members[other][index / 64].fetch_and(~mask);
}

// What the slot's file holds, with what its owner cannot choose put right.
bool read_slot(Segment& segment, int fd, char bytes[sizeof(Slot)]) {
    struct stat about;
    if (fd < 0 || fstat(fd, &about) != 0 || !is_slot_file(about)) return false;
    if (pread(fd, bytes, sizeof(Slot), 0) != static_cast<ssize_t>(sizeof(Slot))) return false;
    auto* slot = reinterpret_cast<Slot*>(bytes);
    slot->uid = about.st_uid;
    slot->tenant_class.store(std::max(slot->tenant_class.load(), best_class(segment, about.st_uid, about.st_gid)));
    return true;
}

void copy_slot(Segment& segment, int index) {
    alignas(Slot) char bytes[sizeof(Slot)];
    Attached& here = attached(segment);
    File file(::open(slot_file(here, index).text, kReadOnly));
    if (!read_slot(segment, file.fd, bytes)) memset(bytes, 0, sizeof bytes);
    memcpy(reinterpret_cast<char*>(&segment.slot(index)), bytes, sizeof bytes);
    const Slot& seen = segment.slot(index);
    enter(here, index, is_live(seen) ? seen.tenant_class.load() : kClasses);
}

// Whether somebody has come or gone since the slots were listed. The time alone is too coarse; on a tmpfs the size
// tells the number of names.
bool has_changed(const Attached& here, const struct stat& folder) {
    return folder.st_size != here.folder_size || folder.st_mtim.tv_sec != here.changed.tv_sec ||
           folder.st_mtim.tv_nsec != here.changed.tv_nsec;
}

void list_slots(Attached& here) {
    struct stat about;
    if (stat(slots_folder(here).text, &about) == 0) {
        here.changed = about.st_mtim;
        here.folder_size = about.st_size;
    }
    memset(here.present, 0, sizeof here.present);
    DIR* folder = opendir(slots_folder(here).text);
    if (!folder) return;
    for (int names = 0; names < kMostNames; ++names) {
        dirent* entry = readdir(folder);
        if (!entry) break;
        char* end = nullptr;
        unsigned long index = strtoul(entry->d_name, &end, 10);
        bool is_number = end != entry->d_name && !*end && entry->d_name[0] >= '0' && entry->d_name[0] <= '9';
        if (is_number && index < kSlots) set_bit(here.present, static_cast<int>(index));
    }
    closedir(folder);
}

// Only while no living process has it, and only the file that was looked at.
bool remove_slot(Segment& segment, int index) {
    alignas(Slot) char bytes[sizeof(Slot)];
    struct stat opened, named;
    Path path = slot_file(attached(segment), index);
    File file(::open(path.text, kReadOnly));
    if (file.fd < 0 || flock(file.fd, LOCK_EX | LOCK_NB) != 0) return false;
    FAULT_POINT();
    return read_slot(segment, file.fd, bytes) && !is_live(*reinterpret_cast<Slot*>(bytes)) &&
           fstat(file.fd, &opened) == 0 && lstat(path.text, &named) == 0 && opened.st_ino == named.st_ino &&
           ::unlink(path.text) == 0;
}

int see_everybody(Segment& segment) {
    Attached& here = attached(segment);
    uint64_t before[kSlotWords];
    memcpy(before, here.present, sizeof before);
    list_slots(here);
    int removed = 0;
    uid_t self = geteuid();
    for (int i = 0; i < kSlots; ++i) {
        if (i == here.own || !(bit(here.present, i) || bit(before, i))) continue;
        copy_slot(segment, i);
        const Slot& slot = segment.slot(i);
        bool may_remove = slot.uid == self || self == 0;
        if (!bit(here.present, i) || is_live(slot) || !may_remove || !remove_slot(segment, i)) continue;
        clear_bit(here.present, i);
        ++removed;
    }
    return removed;
}

bool map_slot(Segment& segment, int index, int fd) {
    int protection = PROT_READ | PROT_WRITE, kind = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    return mmap(&segment.slot(index), page_bytes(), protection, kind | MAP_FIXED, fd, 0) != MAP_FAILED;
}

// Maps the new file as this slot, takes its owner word, and gives it the slot's name.
bool become_slot(Segment& segment, int index, int fd, const char* unnamed) {
    Slot& slot = segment.slot(index);
    if (!map_slot(segment, index, fd)) return false;
    if (take_owner(attached(segment).hold, slot.owner)) {
        FAULT_POINT();
        if (::link(unnamed, slot_file(attached(segment), index).text) == 0) return true;
        leave_owner(attached(segment).hold, slot.owner);
    }
    map_slot(segment, index, -1);
    return false;
}

// Of all that is said of a user what is said most particularly.
template <class Said>
uint64_t right_of(Segment& segment, uid_t uid, gid_t gid, Said&& said) {
    uint32_t best = of_everybody + 1;
    uint64_t found = 0;
    for (Right& right : segment.header.rights) {
        uint32_t whose = right.whose.load(), id = right.id.load();
        bool fits = whose == of_everybody || (whose == of_user && id == uid) || (whose == of_group && id == gid);
        uint64_t value = said(right);
        if (fits && value && whose < best) {
            best = whose;
            found = value;
        }
    }
    return found;
}

}  // namespace

const char* default_shared_segment() {
    struct stat about;
    bool is_roots = lstat(COTENANT_SHARED_SEGMENT, &about) == 0 && S_ISDIR(about.st_mode) && about.st_uid == 0 &&
                    !(about.st_mode & (S_IWGRP | S_IWOTH));
    return is_roots ? COTENANT_SHARED_SEGMENT : nullptr;
}

Segment* reserve_segment() {
    void* at = mmap(nullptr, mapped_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return nullptr;
    auto* segment = static_cast<Segment*>(at);
    attached(*segment).own = -1;
    attached(*segment).process.store(getpid());
    pthread_mutex_init(&attached(*segment).lock, nullptr);
    return segment;
}

Segment* open_shared_segment(const char* folder, std::string* why) {
    std::string header_file = std::string(folder) + "/header";
    int flags = kReadOnly & ~O_ACCMODE;
    int protection = PROT_READ | PROT_WRITE;
    int fd = ::open(header_file.c_str(), flags | O_RDWR);
    if (fd < 0 && (errno == EACCES || errno == EROFS)) {
        protection = PROT_READ;
        fd = ::open(header_file.c_str(), flags | O_RDONLY);
    }
    File file(fd);
    struct stat about, folder_about;
    Header header;
    char* raw = reinterpret_cast<char*>(&header);
    if (fd < 0 || fstat(fd, &about) != 0 || stat(folder, &folder_about) != 0) {
        *why = problem("cannot open", header_file.c_str());
        return nullptr;
    }
    if (!S_ISREG(about.st_mode) || about.st_size != static_cast<off_t>(page_bytes()) ||
        strlen(folder) >= sizeof(Attached::folder) ||
        pread(fd, raw, sizeof header, 0) != static_cast<ssize_t>(sizeof header) ||
        memcmp(header.magic, kMagic, sizeof kMagic) != 0) {
        *why = std::string(folder) + " is not a Cotenant segment";
        return nullptr;
    }
    if (about.st_uid != folder_about.st_uid || ((about.st_mode | folder_about.st_mode) & (S_IWGRP | S_IWOTH))) {
        *why = std::string(folder) + " can be changed by others than its owner";
        return nullptr;
    }
    if (header.version != kVersion || header.slots != kSlots || header.slot_bytes != page_bytes()) {
        *why = std::string(folder) + " has layout version " + std::to_string(header.version) + ", this Cotenant uses " +
               std::to_string(kVersion);
        return nullptr;
    }
    Segment* segment = reserve_segment();
    if (!segment || mmap(segment, page_bytes(), protection, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        *why = problem("cannot map", header_file.c_str());
        if (segment) munmap(segment, mapped_bytes());
        return nullptr;
    }
    snprintf(attached(*segment).folder, sizeof(Attached::folder), "%s", folder);
    look_around(*segment);
    return segment;
}

bool create_shared_header(const char* path, std::string* why) {
    File file(::open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (file.fd < 0) {
        *why = problem("cannot create", path);
        return false;
    }
    alignas(Header) char header[sizeof(Header)] = {};
    begin_header(*reinterpret_cast<Header*>(header));
    bool done = fchmod(file.fd, 0644) == 0 && posix_fallocate(file.fd, 0, static_cast<off_t>(page_bytes())) == 0 &&
                pwrite(file.fd, header, sizeof header, 0) == static_cast<ssize_t>(sizeof header);
    if (!done) *why = problem("cannot write", path);
    return done;
}

int take_shared_slot(Segment& segment) {
    Attached& here = attached(segment);
    Looking looking(here);
    see_everybody(segment);
    Path unnamed = slots_folder(here);
    size_t used = strlen(unnamed.text);
    snprintf(unnamed.text + used, sizeof unnamed.text - used, "/new.%d.%lx", getpid(),
             static_cast<unsigned long>(now_ns()));
    File file(::open(unnamed.text, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (file.fd < 0) return -1;
    FAULT_POINT();
    struct stat about;
    int taken = -1;
    // Others must be able to read it, whatever the umask. And posix_fallocate: a full tmpfs is an error here.
    if (fchmod(file.fd, 0644) == 0 && posix_fallocate(file.fd, 0, page_bytes()) == 0 && fstat(file.fd, &about) == 0)
        for (int i = 0; taken < 0 && i < kSlots; ++i)
            if (!bit(here.present, i) && become_slot(segment, i, file.fd, unnamed.text)) taken = i;
    FAULT_POINT();
    ::unlink(unnamed.text);
    if (taken < 0) return -1;
    here.own = taken;
    here.uid = about.st_uid;
    here.gid = about.st_gid;
    here.file = about.st_ino;
    return taken;
}

void leave_shared_slot(Segment& segment, int index) {
    Attached& here = attached(segment);
    Looking looking(here);
    Path path = slot_file(here, index);
    struct stat named;
    if (lstat(path.text, &named) == 0 && named.st_ino == here.file) ::unlink(path.text);
    // It stays `own`: nothing is copied to where our streams may still wait at the gate.
    enter(here, index, kClasses);
}

int look_around(Segment& segment) {
    Looking looking(attached(segment));
    return see_everybody(segment);
}

void look_at_rivals(Segment& segment, int index, Look how) {
    Attached& here = attached(segment);
    uint64_t began = now_ns();
    Looking looking(here);
    if (how == Look::sparing && began < here.next_look_ns) return;
    struct stat folder;
    if (stat(slots_folder(here).text, &folder) == 0 && has_changed(here, folder)) see_everybody(segment);
    bool classes_matter = segment.header.knobs.rule.load() == admission::strict;
    uint32_t last = classes_matter ? segment.slot(index).tenant_class.load() : kClasses - 1;
    for (int word = 0; word < kSlotWords; ++word) {
        uint64_t rivals = 0;
        for (uint32_t tenant_class = 0; tenant_class <= last && tenant_class < kClasses; ++tenant_class)
            rivals |= here.members[tenant_class][word].load();
        for (; rivals; rivals &= rivals - 1)
            if (int other = word * 64 + __builtin_ctzll(rivals); other != here.own) copy_slot(segment, other);
    }
    uint64_t ended = now_ns();
    here.next_look_ns = ended + std::min(7 * (ended - began), kLongestPauseNs);
}

bool steer_shared_slot(Segment& segment, int index, int gpu) {
    Attached& here = attached(segment);
    Looking looking(here);
    Slot& copy = segment.slot(index);
    File file(::open(slot_file(here, index).text, (kReadOnly & ~O_ACCMODE) | O_RDWR));
    struct stat about;
    if (file.fd < 0 || fstat(file.fd, &about) != 0 || !is_slot_file(about)) return false;
    if (about.st_uid != copy.uid || about.st_nlink != 1) return false;
    const char* from = reinterpret_cast<const char*>(&copy.gpus[gpu].shut_until_ns);
    const char* end = reinterpret_cast<const char*>(&copy.gpus[gpu].rate) + sizeof(Flag);
    ssize_t bytes = end - from;
    return pwrite(file.fd, from, bytes, from - reinterpret_cast<const char*>(&copy)) == bytes;
}

uint32_t best_class(Segment& segment, uid_t uid, gid_t gid) {
    uint64_t said = right_of(segment, uid, gid, [](Right& right) { return right.best_class.load(); });
    return said ? static_cast<uint32_t>(said) - 1 : production;
}

uint64_t imposed_memory_limit(Segment& segment, uid_t uid, gid_t gid) {
    return right_of(segment, uid, gid, [](Right& right) { return right.memory_limit.load(); });
}

}  // namespace wire
