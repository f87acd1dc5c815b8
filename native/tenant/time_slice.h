// How long the hardware lets this process's channels run before another process gets its turn: those of its kernels,
// and those of its copies. The driver has one set for its kernels, by an unprivileged call to the kernel module; by the
// same call we set ours after it.
#pragma once

#include <cstdint>

#include "admission/time_slices.h"

namespace tenant {

// For kernels: what we ask for, and what holds, in microseconds. 0: nothing was asked for yet.
struct TimeSlice {
    uint32_t asked_us;
    uint32_t granted_us;
    bool refused;  // ours was not taken; the driver's own holds
};

TimeSlice time_slice();

// For the channel groups that are there and those that will be made.
void set_time_slices(const admission::TimeSlices& slices);

}  // namespace tenant
