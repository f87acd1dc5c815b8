#include "wire/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <new>

// A process may be killed between any two stores: tests define this to be killed at each place in turn.
#ifndef FAULT_POINT
#define FAULT_POINT()
#endif

namespace wire {

namespace {

std::string because(const char* what, const char* path) {
    return std::string(what) + " " + path + ": " + strerror(errno);
}

bool prepare_owner_mutexes(Segment& segment) {
    pthread_mutexattr_t attributes;
    if (pthread_mutexattr_init(&attributes) != 0) return false;
    bool ok = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) == 0 &&
              pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0;
    for (int i = 0; ok && i < kSlots; ++i) ok = pthread_mutex_init(&segment.slot(i).owner, &attributes) == 0;
    pthread_mutexattr_destroy(&attributes);
    return ok;
}

Segment* map(int fd) {
    void* at = mmap(nullptr, kSegmentBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return at == MAP_FAILED ? nullptr : static_cast<Segment*>(at);
}

// A new segment appears under its name only when it is complete: written beside it, then linked.
bool create(const char* path, std::string* why) {
    std::string beside = std::string(path) + ".new." + std::to_string(getpid());
    ::unlink(beside.c_str());
    int fd = ::open(beside.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        *why = because("cannot create", path);
        return false;
    }
    bool done = false;
    // posix_fallocate, not ftruncate: a full disk is an error here, not a SIGBUS in the guest.
    if (int error = posix_fallocate(fd, 0, kSegmentBytes)) {
        errno = error;
        *why = because("no room for", path);
    } else if (Segment* segment = map(fd)) {
        Header& header = segment->header;
        memcpy(header.magic, kMagic, sizeof kMagic);
        header.version = kVersion;
        header.header_bytes = kPage;
        header.slot_bytes = kPage;
        header.slots = kSlots;
        header.knobs.rule = rule_strict;
        header.knobs.grace_us = 300;
        header.knobs.gate_every_us = 100;
        header.knobs.stale_ms = 60;
        done = prepare_owner_mutexes(*segment) && (::link(beside.c_str(), path) == 0 || errno == EEXIST);
        if (!done) *why = because("cannot create", path);
        munmap(segment, kSegmentBytes);
    } else {
        *why = because("cannot map", path);
    }
    ::close(fd);
    ::unlink(beside.c_str());
    return done;
}

bool is_busy(Segment& segment, const Slot& slot, int gpu) {
    return slot.gpus[gpu].busy.load() && is_live(slot) && !is_stale(segment, slot.heartbeat_ns.load());
}

bool any_busy(Segment& segment, uint32_t tenant_class, int gpu) {
    for (int word = 0; word < kSlotWords; ++word) {
        for (uint64_t bits = segment.header.members[tenant_class][word].load(); bits; bits &= bits - 1) {
            if (is_busy(segment, segment.slot(word * 64 + __builtin_ctzll(bits)), gpu)) return true;
        }
    }
    return false;
}

template <class Do>
void for_each_below(Segment& segment, uint32_t tenant_class, Do&& act) {
    for (uint32_t below = tenant_class + 1; below < kClasses; ++below)
        for (int word = 0; word < kSlotWords; ++word)
            for (uint64_t bits = segment.header.members[below][word].load(); bits; bits &= bits - 1)
                act(word * 64 + __builtin_ctzll(bits));
}

void leave_classes(Segment& segment, int index) {
    for (auto& members : segment.header.members) members[index / 64].fetch_and(~(uint64_t{1} << (index % 64)));
}

// Everything a slot's next owner must not inherit. The caller holds the slot's mutex.
void clear(Segment& segment, int index) {
    Slot& slot = segment.slot(index);
    uint32_t tenant_class = slot.tenant_class.load();
    leave_classes(segment, index);
    FAULT_POINT();
    for (int gpu = 0; gpu < kGpus; ++gpu) {
        bool was_busy = slot.gpus[gpu].busy.exchange(0) != 0;
        FAULT_POINT();
        if (was_busy && tenant_class < kClasses) reopen_gates_below(segment, tenant_class, gpu);
    }
    char* after_mutex = reinterpret_cast<char*>(&slot) + sizeof slot.owner;
    memset(after_mutex, 0, sizeof slot - sizeof slot.owner);
    FAULT_POINT();
    // The leaving owner's streams may still wait here: they must drain.
    for (OnGpu& gpu : slot.gpus) gpu.gate.store(open);
}

}  // namespace

Segment* open_segment(const char* path, std::string* why) {
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
        } else if (header_bytes.version != kVersion || header_bytes.slots != kSlots ||
                   header_bytes.slot_bytes != kPage || about.st_size != static_cast<off_t>(kSegmentBytes)) {
            *why = std::string(path) + " has layout version " + std::to_string(header_bytes.version) +
                   ", this Cotenant uses " + std::to_string(kVersion);
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
    if (segment) munmap(segment, kSegmentBytes);
}

uint64_t now_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000000000 + static_cast<uint64_t>(now.tv_nsec);
}

bool is_stale(Segment& segment, uint64_t heartbeat_ns) {
    int64_t age = static_cast<int64_t>(now_ns() - heartbeat_ns);
    return age >= int64_t{segment.header.knobs.stale_ms.load()} * 1000000;
}

int take_slot(Segment& segment) {
    for (int i = 0; i < kSlots; ++i) {
        Slot& slot = segment.slot(i);
        if (is_live(slot)) continue;
        int result = pthread_mutex_trylock(&slot.owner);
        if (result == EOWNERDEAD) pthread_mutex_consistent(&slot.owner);
        if (result != 0 && result != EOWNERDEAD) continue;
        FAULT_POINT();
        clear(segment, i);
        return i;
    }
    return -1;
}

void leave_slot(Segment& segment, int index) {
    clear(segment, index);
    FAULT_POINT();
    pthread_mutex_unlock(&segment.slot(index).owner);
}

int bury_the_dead(Segment& segment) {
    int buried = 0;
    for (int i = 0; i < kSlots; ++i) {
        Slot& slot = segment.slot(i);
        if (!(__atomic_load_n(reinterpret_cast<uint32_t*>(&slot.owner), __ATOMIC_ACQUIRE) & kOwnerDied)) continue;
        if (pthread_mutex_trylock(&slot.owner) != EOWNERDEAD) continue;
        FAULT_POINT();
        pthread_mutex_consistent(&slot.owner);
        FAULT_POINT();
        leave_slot(segment, i);
        ++buried;
    }
    return buried;
}

int gpu_number(Segment& segment, const uint8_t uuid[16]) {
    for (int i = 0; i < kGpus; ++i) {
        Header::Gpu& gpu = segment.header.gpus[i];
        uint32_t free_entry = 0;
        // An entry being written by a process that died there stays unused: 15 others remain.
        if (gpu.known.compare_exchange_strong(free_entry, 1)) {
            memcpy(gpu.uuid, uuid, sizeof gpu.uuid);
            gpu.known.store(2);
            return i;
        }
        for (int tries = 0; gpu.known.load() == 1 && tries < 1000; ++tries) usleep(10);
        if (gpu.known.load() == 2 && memcmp(gpu.uuid, uuid, sizeof gpu.uuid) == 0) return i;
    }
    return -1;
}

void join_class(Segment& segment, int index, Class tenant_class) {
    segment.slot(index).tenant_class.store(tenant_class);
    FAULT_POINT();
    leave_classes(segment, index);
    FAULT_POINT();
    segment.header.members[tenant_class][index / 64].fetch_or(uint64_t{1} << (index % 64));
    for (int gpu = 0; gpu < kGpus; ++gpu) refresh_gate(segment, index, gpu);
}

bool must_yield(Segment& segment, uint32_t tenant_class, int gpu) {
    for (uint32_t above = 0; above < tenant_class; ++above)
        if (any_busy(segment, above, gpu)) return true;
    return false;
}

void go_busy(Segment& segment, int index, int gpu) {
    Slot& slot = segment.slot(index);
    slot.heartbeat_ns.store(now_ns());
    FAULT_POINT();
    slot.gpus[gpu].busy.store(1);
    FAULT_POINT();
    if (segment.header.knobs.rule.load() == rule_strict) close_gates_below(segment, slot.tenant_class.load(), gpu);
}

void close_gates_below(Segment& segment, uint32_t tenant_class, int gpu) {
    for_each_below(segment, tenant_class, [&](int index) { segment.slot(index).gpus[gpu].gate.store(closed); });
}

void reopen_gates_below(Segment& segment, uint32_t tenant_class, int gpu) {
    for_each_below(segment, tenant_class, [&](int index) { refresh_gate(segment, index, gpu); });
}

void refresh_gate(Segment& segment, int index, int gpu) {
    Slot& slot = segment.slot(index);
    uint32_t tenant_class = slot.tenant_class.load();
    if (tenant_class >= kClasses) return;
    for (;;) {
        bool yields = segment.header.knobs.rule.load() == rule_strict && must_yield(segment, tenant_class, gpu);
        slot.gpus[gpu].gate.store(yields ? closed : open);
        if (yields == (segment.header.knobs.rule.load() == rule_strict && must_yield(segment, tenant_class, gpu)))
            return;
    }
}

}  // namespace wire
