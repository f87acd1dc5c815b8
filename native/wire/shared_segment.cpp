#include "wire/shared_segment.h"

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

#include "admission/admission.h"
#include "wire/border.h"
#include "wire/clock.h"
#include "wire/header.h"
#include "wire/sleep.h"

#ifndef FAULT_POINT
#define FAULT_POINT()
#endif
#ifndef COTENANT_SHARED_SEGMENT
#define COTENANT_SHARED_SEGMENT "/dev/shm/cotenant.shared"
#endif

namespace wire {

namespace {

constexpr uint64_t kLongestPauseNs = 1000000;   // between looks, even after a delayed one
constexpr uint64_t kRoundNs = 1000000000;       // at most, until everybody has been looked at
constexpr uint64_t kUnreadableNs = 1000000000;  // a slot that cannot be read counts as it was for so long
constexpr uint64_t kBellNs = 5000000;
constexpr int kFolder = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW;
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

struct Name {
    explicit Name(int index) { snprintf(text, sizeof text, "%d", index); }
    char text[48];
};

// The folder of the slots, for one look. Not kept open: a program may close what it does not know, or run out of files.
int open_slots(const Attached& here) {
    File folder(::open(here.folder, kFolder));
    return folder.fd < 0 ? -1 : openat(folder.fd, "slots", kFolder);
}

std::string problem(const std::string& what, const char* path) { return what + " " + path + ": " + strerror(errno); }

bool bit(const uint64_t* words, int index) { return words[index / 64] >> (index % 64) & 1; }
void set_bit(uint64_t* words, int index) { words[index / 64] |= uint64_t{1} << (index % 64); }
void clear_bit(uint64_t* words, int index) { words[index / 64] &= ~(uint64_t{1} << (index % 64)); }

// By a process that may be alive.
bool is_owned(const Slot& slot) { return is_live(slot) && !is_abandoned(slot); }

bool is_slot_file(const struct stat& about) {
    return S_ISREG(about.st_mode) && about.st_size == static_cast<off_t>(place_bytes());
}

// Into this class and no other; beyond the last: into none. A reader never finds a member in no class meanwhile.
void enter(Attached& here, int index, uint32_t tenant_class) {
    uint64_t mask = uint64_t{1} << (index % 64);
    if (tenant_class < kClasses) here.members[tenant_class][index / 64].fetch_or(mask);
    for (uint32_t other = 0; other < kClasses; ++other)
        if (other != tenant_class) here.members[other][index / 64].fetch_and(~mask);
}

enum class Found { gone, unreadable, good };

// What the slot's file holds, with what its owner cannot choose put right.
Found read_slot(Segment& segment, int fd, char bytes[sizeof(Slot)]) {
    if (fd < 0) {
        bool is_gone = errno == ENOENT || errno == ENOTDIR || errno == ELOOP || errno == ENXIO;
        return is_gone ? Found::gone : Found::unreadable;
    }
    struct stat about;
    if (fstat(fd, &about) != 0) return Found::unreadable;
    if (!is_slot_file(about)) return Found::gone;
    if (pread(fd, bytes, sizeof(Slot), 0) != static_cast<ssize_t>(sizeof(Slot))) return Found::unreadable;
    auto* slot = reinterpret_cast<Slot*>(bytes);
    slot->uid = about.st_uid;
    slot->tenant_class.store(std::max(class_of(*slot), best_class(segment, about.st_uid, about.st_gid)));
    return Found::good;
}

// Other threads read the copy meanwhile. Null: nothing but zeros.
void put_copy(Slot& to, const char* bytes) {
    static_assert(sizeof(Slot) % sizeof(uint64_t) == 0);
    auto* words = reinterpret_cast<uint64_t*>(&to);
    for (size_t i = 0; i < sizeof(Slot) / sizeof(uint64_t); ++i) {
        uint64_t word = 0;
        if (bytes) memcpy(&word, bytes + i * sizeof word, sizeof word);
        __atomic_store_n(words + i, word, __ATOMIC_RELAXED);
    }
}

// What could not be read (no file may be left to this program, or its owner forbids it) is not gone: it stays as it was
// for a while, and as fresh.
void keep_copy(Segment& segment, int index) {
    Attached& here = attached(segment);
    Slot& copy = segment.slot(index);
    uint64_t now = now_ns(), read = here.read_ns[index], beat = copy.heartbeat_ns.load();
    if (now - read >= kUnreadableNs) return;
    bool was_fresh = beat + uint64_t{stale_ms(segment.header.knobs)} * 1000000 > read;
    if (was_fresh) copy.heartbeat_ns.store(now);
}

void forget(Segment& segment, int index) {
    Attached& here = attached(segment);
    if (!bit(here.present, index)) return;
    clear_bit(here.present, index);
    put_copy(segment.slot(index), nullptr);
    enter(here, index, kClasses);
}

void copy_slot(Segment& segment, int slots, int index) {
    Attached& here = attached(segment);
    File file(openat(slots, Name(index).text, kReadOnly));
    Found found = read_slot(segment, file.fd, here.read);
    if (found == Found::unreadable) {
        keep_copy(segment, index);
        return;
    }
    if (found == Found::gone) {
        forget(segment, index);
        return;
    }
    set_bit(here.present, index);
    here.read_ns[index] = now_ns();
    put_copy(segment.slot(index), here.read);
    const Slot& seen = segment.slot(index);
    enter(here, index, is_live(seen) ? seen.tenant_class.load() : kClasses);
}

// Whether a slot has come or gone since all were read. The time alone is too coarse; on a tmpfs the size tells the
// number of names.
bool has_changed(Attached& here, int slots) {
    struct stat folder;
    if (fstat(slots, &folder) != 0) return true;
    bool changed = folder.st_size != here.folder_size || folder.st_mtim.tv_sec != here.changed.tv_sec ||
                   folder.st_mtim.tv_nsec != here.changed.tv_nsec;
    here.changed = folder.st_mtim;
    here.folder_size = folder.st_size;
    return changed;
}

// Only while no living process has it, and only the file that was looked at.
bool remove_slot(Segment& segment, int slots, int index) {
    char* bytes = attached(segment).read;
    struct stat opened, named;
    Name name(index);
    File file(openat(slots, name.text, kReadOnly));
    if (file.fd < 0 || flock(file.fd, LOCK_EX | LOCK_NB) != 0) return false;
    FAULT_POINT();
    return read_slot(segment, file.fd, bytes) == Found::good && !is_owned(*reinterpret_cast<Slot*>(bytes)) &&
           fstat(file.fd, &opened) == 0 && fstatat(slots, name.text, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           opened.st_ino == named.st_ino && unlinkat(slots, name.text, 0) == 0;
}

// By name, all that there can be: other names in the folder hide none of them.
enum class Whom { everybody, known };
int see(Segment& segment, int slots, Whom whom) {
    Attached& here = attached(segment);
    if (whom == Whom::everybody) here.next_round_ns = now_ns() + kRoundNs;
    int removed = 0;
    uid_t self = geteuid();
    for (int i = 0; i < kSlots; ++i) {
        if (i == here.own || (whom == Whom::known && !bit(here.present, i))) continue;
        copy_slot(segment, slots, i);
        const Slot& slot = segment.slot(i);
        bool may_remove = slot.uid == self || self == 0;
        if (!bit(here.present, i) || is_owned(slot) || !may_remove || !remove_slot(segment, slots, i)) continue;
        forget(segment, i);
        ++removed;
    }
    return removed;
}

// Without the folder (an administrator has removed it) there are no tenants.
void see_nobody(Segment& segment) {
    Attached& here = attached(segment);
    for (int i = 0; i < kSlots; ++i)
        if (i != here.own) forget(segment, i);
}

int see_everybody(Segment& segment) {
    Attached& here = attached(segment);
    File slots(open_slots(here));
    if (slots.fd < 0) {
        if (errno == ENOENT) see_nobody(segment);
        return 0;
    }
    has_changed(here, slots.fd);
    return see(segment, slots.fd, Whom::everybody);
}

bool map_slot(Segment& segment, int index, int fd) {
    int protection = PROT_READ | PROT_WRITE, kind = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    return mmap(&segment.slot(index), place_bytes(), protection, kind | MAP_FIXED, fd, 0) != MAP_FAILED;
}

// A file that is no slot yet, and the path by which it gets a slot's name.
//   nameless   nothing is left behind by a process that is killed meanwhile
//   named      new.PID.MOMENT, where the file system or /proc does not allow the other
enum class Birth { nameless, named };
using PathText = char[48];
int open_unborn(int slots, Birth birth, PathText& path) {
    if (birth == Birth::named) {
        snprintf(path, sizeof path, "new.%d.%lx", getpid(), static_cast<unsigned long>(now_ns()));
        return openat(slots, path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    }
    int fd = openat(slots, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0644);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return fd;
}

// Maps the new file as this slot, takes its owner word, and gives it the slot's name.
bool become_slot(Segment& segment, int slots, int index, int fd, Birth birth, const char* unborn, BeginSlot begin) {
    Slot& slot = segment.slot(index);
    if (!map_slot(segment, index, fd)) return false;
    if (take_owner(attached(segment).hold, slot.owner)) {
        // Once the file has its name, others remove it unless it is signed: this process may be delayed for seconds.
        begin(segment, index);
        FAULT_POINT();
        int follow = birth == Birth::nameless ? AT_SYMLINK_FOLLOW : 0;
        if (linkat(slots, unborn, slots, Name(index).text, follow) == 0) return true;
        leave_owner(attached(segment).hold, slot.owner);
    }
    map_slot(segment, index, -1);
    return false;
}

// The number of the slot that it has become, or -1.
int be_born(Segment& segment, int slots, Birth birth, BeginSlot begin, struct stat& about) {
    PathText unborn;
    File file(open_unborn(slots, birth, unborn));
    if (file.fd < 0) return -1;
    FAULT_POINT();
    int taken = -1;
    // Others must be able to read it, whatever the umask. And posix_fallocate: a full tmpfs is an error here.
    if (fchmod(file.fd, 0644) == 0 && posix_fallocate(file.fd, 0, static_cast<off_t>(place_bytes())) == 0 &&
        fstat(file.fd, &about) == 0)
        for (int i = 0; taken < 0 && i < kSlots; ++i)
            if (!bit(attached(segment).present, i) && become_slot(segment, slots, i, file.fd, birth, unborn, begin))
                taken = i;
    FAULT_POINT();
    if (birth == Birth::named) unlinkat(slots, unborn, 0);
    return taken;
}

// Of all that is said of a user what is said most particularly.
template <class Value>
uint64_t granted_to(Segment& segment, uid_t uid, gid_t gid, Value&& value_of) {
    uint32_t best = everybody + 1;
    uint64_t found = 0;
    for (const Grant& grant : segment.header.grants) {
        Granted entry = granted_by(grant);
        bool fits = entry.subject_kind == everybody || (entry.subject_kind == user && entry.subject_id == uid) ||
                    (entry.subject_kind == group && entry.subject_id == gid);
        uint64_t value = value_of(entry);
        if (fits && value && entry.subject_kind < best) {
            best = entry.subject_kind;
            found = value;
        }
    }
    return found;
}

}  // namespace

bool is_strangers(const char* path, const struct stat& about) {
    if (about.st_uid == 0 || about.st_uid == geteuid()) return false;
    std::string own = "/dev/shm/cotenant-" + std::to_string(getuid()) + ".v" + std::to_string(kVersion);
    return own == path || !strcmp(path, COTENANT_SHARED_SEGMENT);
}

const char* default_shared_segment() {
    struct stat about;
    bool is_roots = lstat(COTENANT_SHARED_SEGMENT, &about) == 0 && S_ISDIR(about.st_mode) && about.st_uid == 0 &&
                    !(about.st_mode & (S_IWGRP | S_IWOTH));
    return is_roots ? COTENANT_SHARED_SEGMENT : nullptr;
}

Segment* open_shared_segment(const char* folder, std::string* why) {
    std::string header_file = std::string(folder) + "/header";
    int flags = kReadOnly & ~O_ACCMODE;
    int protection = PROT_READ | PROT_WRITE;
    File above(::open(folder, kFolder));
    int fd = above.fd < 0 ? -1 : openat(above.fd, "header", flags | O_RDWR);
    if (above.fd >= 0 && fd < 0 && (errno == EACCES || errno == EROFS)) {
        protection = PROT_READ;
        fd = openat(above.fd, "header", flags | O_RDONLY);
    }
    File file(fd);
    struct stat about, folder_about;
    Header header;
    char* raw = reinterpret_cast<char*>(&header);
    if (above.fd >= 0 && fd < 0 && errno == ENOENT) {
        *why = std::string(folder) + " is not a Cotenant segment";
        return nullptr;
    }
    if (fd < 0 || fstat(fd, &about) != 0 || fstat(above.fd, &folder_about) != 0) {
        *why = problem("cannot open", header_file.c_str());
        return nullptr;
    }
    if (is_strangers(folder, folder_about)) {
        *why = std::string(folder) + " belongs to another user";
        return nullptr;
    }
    if (!S_ISREG(about.st_mode) || strlen(folder) >= sizeof(Attached::folder) ||
        pread(fd, raw, sizeof header, 0) != static_cast<ssize_t>(sizeof header) ||
        memcmp(header.magic, kMagic, sizeof kMagic) != 0) {
        *why = std::string(folder) + " is not a Cotenant segment";
        return nullptr;
    }
    if (about.st_uid != folder_about.st_uid || ((about.st_mode | folder_about.st_mode) & (S_IWGRP | S_IWOTH))) {
        *why = std::string(folder) + " can be changed by others than its owner";
        return nullptr;
    }
    if (!is_ours(header, folder, why)) return nullptr;
    if (about.st_size != static_cast<off_t>(place_bytes())) {
        *why = std::string(folder) + " is not a Cotenant segment";
        return nullptr;
    }
    Segment* segment = reserve_segment();
    if (!segment || mmap(segment, place_bytes(), protection, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
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
    bool done = fchmod(file.fd, 0644) == 0 && posix_fallocate(file.fd, 0, static_cast<off_t>(place_bytes())) == 0 &&
                pwrite(file.fd, header, sizeof header, 0) == static_cast<ssize_t>(sizeof header);
    if (!done) *why = problem("cannot write", path);
    return done;
}

int take_shared_slot(Segment& segment, BeginSlot begin) {
    Attached& here = attached(segment);
    Looking looking(here);
    see_everybody(segment);
    File slots(open_slots(here));
    if (slots.fd < 0) return -1;
    struct stat about;
    int taken = be_born(segment, slots.fd, Birth::nameless, begin, about);
    if (taken < 0) taken = be_born(segment, slots.fd, Birth::named, begin, about);
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
    File slots(open_slots(here));
    Name name(index);
    struct stat named;
    if (slots.fd >= 0 && fstatat(slots.fd, name.text, &named, AT_SYMLINK_NOFOLLOW) == 0 && named.st_ino == here.file)
        unlinkat(slots.fd, name.text, 0);
    // It stays `own`: nothing is copied to where our streams may still wait at the gate.
    enter(here, index, kClasses);
}

int look_around(Segment& segment) {
    std::atomic_thread_fence(std::memory_order_seq_cst);  // as in look_at_rivals
    Attached& here = attached(segment);
    Looking looking(here);
    uint64_t began = now_ns();
    if (began >= here.next_round_ns) return see_everybody(segment);
    File slots(open_slots(here));
    if (slots.fd < 0) return errno == ENOENT ? see_everybody(segment) : 0;
    return see(segment, slots.fd, has_changed(here, slots.fd) ? Whom::everybody : Whom::known);
}

void look_at_rivals(Segment& segment, int index, Look how) {
    std::atomic_thread_fence(std::memory_order_seq_cst);  // between our own `busy` and theirs
    Attached& here = attached(segment);
    uint64_t began = now_ns();
    Looking looking(here);
    if (how == Look::sparing && began < here.next_look_ns) return;
    File slots(open_slots(here));
    if (slots.fd < 0) {
        if (errno == ENOENT) see_nobody(segment);
        return;
    }
    if (has_changed(here, slots.fd)) see(segment, slots.fd, Whom::everybody);
    bool classes_matter = rule_of(segment.header) == admission::strict;
    uint32_t last = classes_matter ? class_of(segment.slot(index)) : kClasses - 1;
    for (int word = 0; word < kSlotWords; ++word) {
        uint64_t rivals = 0;
        for (uint32_t tenant_class = 0; tenant_class <= last && tenant_class < kClasses; ++tenant_class)
            rivals |= here.members[tenant_class][word].load();
        for (; rivals; rivals &= rivals - 1)
            if (int other = word * 64 + __builtin_ctzll(rivals); other != here.own) copy_slot(segment, slots.fd, other);
    }
    uint64_t ended = now_ns();
    here.next_look_ns = ended + std::min(7 * (ended - began), kLongestPauseNs);
}

void ring_bell(Segment& segment) {
    std::atomic<uint64_t>& rung = attached(segment).rung_ns;
    uint64_t now = now_ns(), last = rung.load();
    if (now - last < kBellNs || !rung.compare_exchange_strong(last, now)) return;
    wake_shared(segment.header.bell);
}

bool wait_at_bell(Segment& segment, uint64_t ns) {
    int problem = wait_shared(segment.header.bell, segment.header.bell.load(), ns);
    if (problem && problem != ETIMEDOUT) nap(ns);
    return !problem;
}

bool steer_shared_slot(Segment& segment, int index, int gpu) {
    Attached& here = attached(segment);
    Looking looking(here);
    Slot& copy = segment.slot(index);
    File slots(open_slots(here));
    if (slots.fd < 0) return false;
    File file(openat(slots.fd, Name(index).text, (kReadOnly & ~O_ACCMODE) | O_RDWR));
    struct stat about;
    if (file.fd < 0 || fstat(file.fd, &about) != 0 || !is_slot_file(about)) return false;
    if (about.st_uid != copy.uid || about.st_nlink != 1) return false;
    // What steers a tenant lies in two places: from shut_until_ns to rate, and from sms_until_ns to sms.
    constexpr struct {
        size_t from, to;
    } kSteering[] = {{offsetof(OnGpu, shut_until_ns), offsetof(OnGpu, rate) + sizeof(Flag)},
                     {offsetof(OnGpu, sms_until_ns), offsetof(OnGpu, sms) + sizeof(Flag)}};
    size_t start = offsetof(Slot, gpus) + static_cast<size_t>(gpu) * sizeof(OnGpu);
    const char* of = reinterpret_cast<const char*>(&copy) + start;
    return std::all_of(std::begin(kSteering), std::end(kSteering), [&](auto& part) {
        size_t bytes = part.to - part.from;
        return pwrite(file.fd, of + part.from, bytes, static_cast<off_t>(start + part.from)) ==
               static_cast<ssize_t>(bytes);
    });
}

uint32_t best_class(Segment& segment, uid_t uid, gid_t gid) {
    uint64_t said = granted_to(segment, uid, gid, [](const Granted& entry) { return entry.best_class; });
    return said ? static_cast<uint32_t>(said) - 1 : production;
}

uint64_t imposed_memory_limit(Segment& segment, uid_t uid, gid_t gid) {
    return granted_to(segment, uid, gid, [](const Granted& entry) { return entry.memory_limit; });
}

}  // namespace wire
