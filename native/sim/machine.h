// The GPU that is simulated, and what sharing costs on it.
#pragma once

#include <cstdint>

#include "admission/knobs.h"

namespace sim {

// Times that were measured, and can be measured again on another GPU: docs/simulator.md says how.
struct Interference {
    double drain_us = 150;    // changing contexts when the one that leaves has nothing running
    double cut_us = 350;      // and when a kernel is stopped in the middle
    double cold_us = 0;       // what the one that comes loses to cold caches
    double kill_us = 40;      // stopping a kernel that begins anew later
    double gate_us = 2;       // of a stream's time at each gate
    double open_us = 7;       // from opening a gate to the kernel behind it
    double keep_us = 16;      // together: how long a stream runs before a kernel that waits takes the SMs it leaves;
                              // 0: kernels share the SMs in proportion to what they ask for
    double tail = 0.0145;     // and on top of that, this part of the other's kernel: its blocks do not all end at once
    double blocks = 3;        // together, with priorities: a more urgent kernel waits for so many blocks in a row
    double together_tax = 0;  // together: part of its speed that everybody loses
    double contention = 0;    // together: part of its speed that a kernel loses beside others, beyond SMs and bandwidth
    double watch_us = 50;     // pauses shorter than this are not seen
    double clock_us = 15000;  // how soon the SM clock follows what runs
    double look_us = 120;     // from the end of a watcher's nap to what its look does
};

struct Machine {
    uint32_t sms = 1;
    uint32_t together = 0;      // contexts run side by side, as under MPS or in one process
    uint32_t priorities = 0;    // together: streams have priorities
    uint32_t holds_memory = 0;  // 1: a job comes only when its memory is free; 0: the policy sees to it
    double memory_gbps = 1;
    double slice_us = 2048;
    double launch_us = 2;
    uint64_t memory_bytes = 0;
    double grace_us = admission::kDefaultGraceUs;  // until the job's own pauses have taught a better one
    Interference interference;
};

}  // namespace sim
