// What a slot keeps of its tenant's waits at a closed gate. Whoever closes or opens a gate writes it: the tenant
// itself, or another one. A value that makes no sense ends in the last bucket; a race between two writers loses a wait.
#pragma once

#include <algorithm>

#include "wire/wire.h"

namespace wire {

inline int wait_bucket(uint64_t ns) {
    uint64_t steps = ns / kShortestWaitNs;
    return steps ? std::min(64 - __builtin_clzll(steps), kWaitBuckets - 1) : 0;
}

inline void note_wait(Slot::Waiting& waiting, uint64_t ns) {
    waiting.counts[wait_bucket(ns)].fetch_add(1, std::memory_order_relaxed);
    waiting.sum_ns.fetch_add(ns, std::memory_order_relaxed);
}

// The tenant has work and finds its gate closed.
inline void begin_wait(Slot::Waiting& waiting, uint64_t now_ns) {
    if (!waiting.since_ns.load(std::memory_order_relaxed)) waiting.since_ns.store(now_ns, std::memory_order_relaxed);
}

// Its gate was closed while it had work.
inline void preempt(Slot::Waiting& waiting, uint64_t now_ns) {
    waiting.preemptions.fetch_add(1, std::memory_order_relaxed);
    waiting.since_ns.store(now_ns, std::memory_order_relaxed);
}

// Its gate was opened.
inline void end_wait(Slot::Waiting& waiting, uint64_t now_ns) {
    uint64_t since_ns = waiting.since_ns.exchange(0, std::memory_order_relaxed);
    if (since_ns && since_ns <= now_ns) note_wait(waiting, now_ns - since_ns);
}

// It has no work any more.
inline void stop_waiting(Slot::Waiting& waiting) {
    if (waiting.since_ns.load(std::memory_order_relaxed)) waiting.since_ns.store(0, std::memory_order_relaxed);
}

}  // namespace wire
