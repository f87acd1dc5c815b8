// What this tenant did, moment by moment, for `cotenant timeline` and `cotenant run --timeline` (docs/timelines.md): a
// ring of intervals that the tenant writes while it is asked to. The ring lies in memory of the tenant's own, a memfd
// that is sealed so that nobody can shrink it, and a reader opens it through /proc/PID/fd.
//
//   asked_timeline in the slot, or COTENANT_TIMELINE_RING  ─> the watcher makes the ring ─> `timeline` in the slot
//   names it
//
// An interval is noted once it is over, so that what the ring has lost leaves no half of one behind. While nobody asks,
// each place that would note one costs a load. A kernel's launch has no such place, unless it waits.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tenant/lane_number.h"
#include "wire/wire.h"

namespace tenant::timeline {

enum class Event : uint8_t {
    burst = 1,        // it had work; value: operations that it launched
    gate = 2,         // its gate was closed, or, of a tenant that only copies, its gate for copies; why: Closed
    turn = 3,         // it had the turn among its equals
    launch_wait = 4,  // a launch waited on the CPU: too much was queued
    gpu_wait = 5,     // a burst of production waited for the GPU
    space_wait = 6,   // an allocation waited for space on the GPU
    slice = 7,        // its time slice; value: microseconds; why: 1 if its kernels are cut
    copy = 8,         // a copy's call; value: bytes, where they are known
    evicting = 9,     // its memory is being evicted, is evicted, is being restored; value: bytes on the host
    evicted = 10,
    restoring = 11,
};
enum class Closed : uint8_t { by_higher_class = 1, by_equal = 2, by_policy = 3, over_rate = 4, by_copying = 5 };

struct Entry {
    std::atomic<uint64_t> sequence;  // 1 + its number since the ring was begun; 0: it is being written
    std::atomic<uint64_t> begin_ns, end_ns, value;
    std::atomic<uint64_t> what;  // event, GPU << 8 (255: none), why << 16, lane << 24 (0: none), thread << 32
};

struct Ring {
    char magic[8];  // "cotline"
    uint32_t version, entry_bytes;
    uint64_t capacity;  // entries
    uint32_t pid, unused;
    uint64_t started;             // with pid: of the slot
    std::atomic<uint64_t> count;  // entries ever written: what is over the capacity has been overwritten
    uint64_t reserved[2];
    Entry entries[1];
};
static_assert(sizeof(Entry) == 40 && offsetof(Ring, entries) == 64);

constexpr int kNoGpu = 255;

extern std::atomic<Ring*> on;  // null: nobody asks
inline bool is_on() { return __builtin_expect(on.load(std::memory_order_acquire) != nullptr, 0); }

void note(Event event, int gpu, uint64_t begin_ns, uint64_t end_ns, uint64_t value = 0, uint8_t why = 0,
          uint32_t lane = lane_of_thread);

// From here to the end of the block.
class Interval {
 public:
    Interval(Event event, int gpu, uint64_t value = 0);
    ~Interval();
    Interval(const Interval&) = delete;
    Interval& operator=(const Interval&) = delete;

 private:
    const Event event_;
    const int gpu_;
    const uint64_t value_;
    const uint64_t began_ns_;
};

// The watchers', at their looks, of the process's own tenant and of its lanes. A state that lasts is noted when it
// changes, and when the recording ends.
void saw_gate(int gpu, bool is_closed, Closed why, uint64_t now_ns);
void saw_turn(int gpu, bool holds_it, uint64_t now_ns);
void saw_slice(uint32_t us, bool is_cut, uint64_t now_ns);
void saw_burst(const wire::Slot& slot, int gpu, uint64_t began_ns, uint64_t ended_ns, uint32_t lane = lane_of_thread);

// The watcher's of the process's own tenant (timeline_requests.cpp). Where the system has no memory for the ring,
// nothing is noted.
void begin(wire::Slot& slot, uint64_t kib);
void finish(wire::Slot& slot, uint64_t now_ns);
// Before it begins: what was launched up to here belongs to no burst of the recording.
void note_launched(const wire::Slot& slot, uint32_t lane);
void show(wire::Slot& slot);  // in the slot again, where somebody has overwritten it
// The ring is the parent's; a child that works on a GPU gets its own.
void forget_in_child();

}  // namespace tenant::timeline
