// How long the hardware lets this process's channels run before another process gets its turn. The driver sets that
// itself, once for each channel group it makes, by an unprivileged call to the kernel; we change the number on its way.
#pragma once

#include <algorithm>
#include <cstdint>

#include "wire/wire.h"

namespace tenant {

// What the driver asks the kernel for, and what it got, in microseconds. 0: nothing was asked for yet.
struct TimeSlice {
    uint32_t asked_us;
    uint32_t granted_us;
    bool refused;  // the kernel did not take ours; the driver's own holds
};

TimeSlice time_slice();

// What the slice depends on.
struct Slicing {
    uint32_t tenant_class;
    bool shares;             // takes turns on the hardware with somebody that is not simply to wait: another
                             // production job, or one with a floor
    uint32_t weight = 1000;  // thousandths
    float longest_kernel_us = 0;
};

// 0: leave the driver's. A production job, once on, stays on. An opportunistic one that is in its way is either
// drained or cut: what has short kernels stops at its next gate by itself, and to cut them would only cost a save of
// all registers; a long kernel is cut at once.
inline uint32_t time_slice_for(const Slicing& slicing) {
    constexpr uint32_t kProductionUs = 1000000;
    constexpr uint32_t kSharedUs = 2000;  // for a weight of 1
    constexpr uint32_t kDrainUs = 1000, kCutUs = 30;
    constexpr float kLongKernelUs = 2500;
    if (slicing.tenant_class == wire::standard) return 0;
    if (slicing.shares)
        return std::clamp(static_cast<uint32_t>(uint64_t{kSharedUs} * slicing.weight / 1000), kCutUs, kProductionUs);
    if (slicing.tenant_class == wire::production) return kProductionUs;
    return slicing.longest_kernel_us > kLongKernelUs ? kCutUs : kDrainUs;
}

// Sets it for the channel groups made so far, too; for a class that changes while the job runs.
void set_time_slice(uint32_t us);

}  // namespace tenant
