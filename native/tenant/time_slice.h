// The hardware's time slices of this process's channels: how long its kernels, and its copies, run before another
// process gets its turn. The driver sets a slice for its kernels by an unprivileged call to the kernel module; by the
// same call the interposer sets its own after that.
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
