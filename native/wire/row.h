// What one look of the daemon says of a tenant on a GPU. Python unpacks it in this order: the build writes the names
// and the types from this text (native/codegen/wire_layout.py).
#pragma once

#include <cstdint>

namespace wire {

struct Row {
    uint64_t started;
    uint64_t used_ns;
    uint64_t busy_ns;
    uint64_t gap_ns;
    uint64_t blocked_ns;
    uint64_t blocking_calls;
    uint64_t own_cpu_ns;
    uint64_t asleep_ns;
    uint64_t operations;
    uint64_t bursts;
    uint64_t moved_ns;  // when its memory was last on its way; now, where it is
    uint64_t shut_until_ns;
    uint64_t tolerant_until_ns;
    uint32_t slot;
    uint32_t gpu;
    uint32_t pid;
    uint32_t tenant_class;
    uint32_t weight;
    uint32_t slowdown;
    uint32_t floor;
    uint32_t has_work;
    uint32_t is_held;
    uint32_t in_flight_us;
    uint32_t rate;
    uint32_t profiled_kernels;
    uint32_t unprofiled_kernels;
    uint32_t sms;
    uint32_t sms_refused;
    uint32_t mps_daemon;  // half of its number is enough to tell it; 0: none, or it has failed
};

}  // namespace wire
