// Streams of a tenant that wait for each other: for an event, or as the legacy default stream and others do. Where one
// of them stands at a gate, another that waits for it holds the GPU all the same: the hardware goes to it whenever
// nobody else has work, and stays for the whole time slice (measured: docs/lab-notes.md). And nobody can tell that it
// waits and does not run. So linked streams stand at no gates. Their launches wait on the CPU while the gate is closed,
// and little is in flight then (admission::most_in_flight_us).
//
// The watcher finds them: several streams have work at once, and the program has let a stream wait for an event lately,
// or the legacy default stream is one of them.
#pragma once

#include <atomic>
#include <cstdint>

#include "wire/wire.h"

namespace tenant {

class LinkedStreams {
 public:
    // By whoever lets a stream of the process wait for an event.
    static void note_event_wait() {
        event_waits_.store(event_waits_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }

    // How many streams of this tenant were last seen to be linked on a GPU; 0: none.
    uint32_t count(int gpu) const { return gpus_[gpu].count.load(std::memory_order_relaxed); }

    // By the watcher, about each look at the streams. Before it: whether all streams are to be asked for their work.
    bool is_to_be_counted(int gpu, uint64_t now_ns) {
        OnGpu& here = gpus_[gpu];
        uint32_t waits = event_waits_.load(std::memory_order_relaxed);
        if (waits != here.event_waits) here.waited_ns = now_ns;
        here.event_waits = waits;
        if (count(gpu)) return now_ns - here.seen_ns > kCountNs;
        return here.has_legacy || is_recent(here.waited_ns, now_ns);
    }
    // After it: so many have work, the legacy default stream is one of them.
    void saw(int gpu, uint32_t with_work, bool has_legacy, uint64_t now_ns) {
        OnGpu& here = gpus_[gpu];
        here.has_legacy = has_legacy;
        if (with_work > 1 && (has_legacy || is_recent(here.waited_ns, now_ns))) {
            here.count.store(with_work, std::memory_order_relaxed);
            here.seen_ns = now_ns;
        } else if (count(gpu) && !is_recent(here.seen_ns, now_ns)) {
            here.count.store(0, std::memory_order_relaxed);
        }
    }

 private:
    static constexpr uint64_t kLinkedNs = 2000000000;  // how long streams count as linked that are not seen so any more
    static constexpr uint64_t kCountNs = 100000000;    // from one count to the next
    static bool is_recent(uint64_t then_ns, uint64_t now_ns) { return then_ns && now_ns - then_ns < kLinkedNs; }

    static inline std::atomic<uint32_t> event_waits_{0};
    struct OnGpu {
        std::atomic<uint32_t> count{0};
        // The watcher's.
        uint32_t event_waits = event_waits_.load(std::memory_order_relaxed);
        uint64_t waited_ns = 0, seen_ns = 0;
        bool has_legacy = false;
    } gpus_[wire::kGpus];
};

}  // namespace tenant
