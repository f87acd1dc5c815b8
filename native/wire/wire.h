// The memory that all tenants of one user share. Plain structs, fixed offsets; Python reads the same bytes
// (src/cotenant/segment.py, held equal by tests/test_wire.py).
//
//   page 0        Header   who we are, the knobs, which GPU has which number, which slots belong to which class
//   page 1 + i    Slot i   one process that uses a GPU; only its owner writes it, but for the gates and the knobs
//
// Who owns a slot. Each slot begins with a robust, process-shared mutex that the owner's watcher thread holds for as
// long as it lives. A slot is free when the mutex is unlocked, live when it is locked, and lost when the kernel has set
// FUTEX_OWNER_DIED in its first word, which it does however the owner ends. So "is it alive?" is one load, across
// containers too, and whoever takes a lost slot's mutex cleans up after its owner.
//
// Who may run. `busy` says that a tenant has work on a GPU; `gate` says whether a tenant's streams may go on there. A
// tenant that becomes busy closes the gates of every slot of a lower class: it sets busy first, then the gates. A gate
// is opened by recomputing it and looking again afterwards, so that a racing closer always wins. The busy flag of an
// owner that is dead or has shown no heartbeat for a while (it was stopped) counts for nothing.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace wire {

constexpr char kMagic[8] = {'c', 'o', 't', 'e', 'n', 'a', 'n', 't'};
constexpr uint32_t kVersion = 1;
constexpr size_t kPage = 4096;
constexpr int kSlots = 256;
constexpr int kGpus = 16;
constexpr int kSlotWords = kSlots / 64;

enum Class : uint32_t { production = 0, standard = 1, opportunistic = 2 };
constexpr int kClasses = 3;

enum Gate : uint32_t { closed = 0, open = 1 };

enum Rule : uint32_t {
    rule_none = 0,    // everybody goes
    rule_strict = 1,  // a class goes only while every class above it is idle
};

using Flag = std::atomic<uint32_t>;
using Count = std::atomic<uint64_t>;

struct Knobs {
    Flag rule;
    Flag grace_us;       // how long a tenant's streams must have been empty before it counts as idle
    Flag gate_every_us;  // how much work may be queued between two gates
    Flag stale_ms;       // how old the heartbeat of a tenant may be before its busy flag counts for nothing
};

struct Header {
    char magic[8];
    uint32_t version;
    uint32_t header_bytes;
    uint32_t slot_bytes;
    uint32_t slots;
    Knobs knobs;
    uint8_t unused_a[24];
    Count members[kClasses][kSlotWords];  // bit i: slot i is a live tenant of this class
    uint8_t unused_b[32];
    struct Gpu {
        Flag known;  // 0 free, 1 being written, 2 valid
        uint32_t unused;
        uint8_t uuid[16];
        uint8_t unused_b[8];
    } gpus[kGpus];
};

// What the owner counts, for people and for policies.
struct Figures {
    Count kernels;
    Count graphs;
    Count copies;
    Count memory_ops;  // memsets, stream memory operations, stream-ordered allocation
    Count host_calls;
    Count gates;    // gates put into streams
    Count escaped;  // work that reached the GPU without passing a gate it should have passed
    Count bursts;   // idle -> busy
};

struct OnGpu {
    alignas(64) Flag gate;  // written by others
    alignas(64) Flag busy;
    uint32_t unused;
    Figures figures;
};

struct Slot {
    pthread_mutex_t owner;  // 40 bytes; its first word is the futex
    uint32_t pid;           // in the owner's PID namespace
    uint32_t uid;
    uint64_t started;  // the owner's start time in clock ticks since boot (field 22 of /proc/PID/stat)
    Flag tenant_class;
    Flag weight;              // thousandths
    Count unknown_functions;  // names that the driver knew and we did not, handed out uncounted
    uint8_t tenant[16];       // the `run` it belongs to
    char name[64];            // of the program, zero-terminated
    Count heartbeat_ns;       // CLOCK_MONOTONIC; a busy owner that is stopped lets it go stale
    Flag time_slice_us;       // that the hardware gives it; 0: not known
    Flag time_slice_refused;  // the driver did not take the one of its class
    Flag grace_us;            // that it has learned
    Flag asked_class;         // 1 + the class that somebody asks it to change to; its owner takes it and sets 0
    uint8_t unused[80];
    OnGpu gpus[kGpus];
};

static_assert(std::atomic<uint32_t>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free);
static_assert(sizeof(pthread_mutex_t) == 40);
static_assert(sizeof(Header) <= kPage && sizeof(Slot) <= kPage);
static_assert(sizeof(OnGpu) == 192 && offsetof(Slot, gpus) == 256);

constexpr size_t kSegmentBytes = kPage * (1 + kSlots);

struct Segment {
    union {
        Header header;
        uint8_t header_page[kPage];
    };
    struct alignas(64) SlotPage {
        Slot slot;
        uint8_t rest[kPage - sizeof(Slot)];
    } pages[kSlots];

    Slot& slot(int i) { return pages[i].slot; }
};
static_assert(sizeof(Segment) == kSegmentBytes);

// The futex word's bits (linux/futex.h).
constexpr uint32_t kOwnerDied = 0x40000000;
constexpr uint32_t kOwnerMask = 0x3fffffff;

inline bool is_live(const Slot& slot) {
    uint32_t word = __atomic_load_n(reinterpret_cast<const uint32_t*>(&slot.owner), __ATOMIC_ACQUIRE);
    return (word & kOwnerMask) != 0 && (word & kOwnerDied) == 0;
}

}  // namespace wire
