// How long the hardware lets this process's channels run before another process gets its turn: those of its kernels,
// and those of its copies. The driver has one set for its kernels, by an unprivileged call to the kernel module; by the
// same call we set ours after it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "wire/wire.h"

namespace tenant {

// For kernels: what we ask for, and what holds, in microseconds. 0: nothing was asked for yet.
struct TimeSlice {
    uint32_t asked_us;
    uint32_t granted_us;
    bool refused;  // ours was not taken; the driver's own holds
};

TimeSlice time_slice();

// What the slice depends on.
struct Slicing {
    uint32_t tenant_class;
    bool shares;             // takes turns on the hardware with somebody that is not simply to wait: another
                             // production job, or one with a floor
    uint32_t weight = 1000;  // thousandths
    bool has_above = true;   // a class above uses the GPU
    bool cuts = false;       // admission::shall_cut
    bool overlaps = false;   // an equal is on the GPU, too
};

// 0: leave the driver's. A production job, once on, stays on. An opportunistic one that is in its way is either
// drained or cut: what has short kernels stops at its next gate by itself, and to cut them would only cost a save of
// all registers; a long kernel is cut at once. Where it is in nobody's way it keeps the driver's: equals drain.
// And so it does while an equal is on with it, which one of the two should not be: both with slices shorter than a
// switch takes, neither's kernel would ever end.
inline uint32_t time_slice_for(const Slicing& slicing) {
    constexpr uint32_t kProductionUs = 1000000;
    constexpr uint32_t kSharedUs = 2000;  // for a weight of 1
    constexpr uint32_t kDrainUs = 1000, kCutUs = 30;
    if (slicing.tenant_class == wire::standard) return 0;
    if (slicing.shares)
        return std::clamp(static_cast<uint32_t>(uint64_t{kSharedUs} * slicing.weight / 1000), kCutUs, kProductionUs);
    if (slicing.tenant_class == wire::production) return kProductionUs;
    if (!slicing.has_above || slicing.overlaps) return 0;
    return slicing.cuts ? kCutUs : kDrainUs;
}

// For copies, likewise: an opportunistic one is cut where others wait behind it, and one of production is not
// interrupted by what the kernel module itself has to copy or clear.
inline uint32_t copy_slice_for(const Slicing& slicing) {
    constexpr uint32_t kProductionUs = 10000, kOpportunisticUs = 30;
    if (slicing.tenant_class == wire::opportunistic) return kOpportunisticUs;
    return slicing.tenant_class == wire::production && !slicing.shares ? kProductionUs : 0;
}

struct TimeSlices {
    uint32_t kernels_us, copies_us;

    bool operator==(const TimeSlices& other) const {
        return kernels_us == other.kernels_us && copies_us == other.copies_us;
    }
};

// For the channel groups that are there and those that will be made.
void set_time_slices(const TimeSlices& slices);

void forget_time_slices_in_child();

}  // namespace tenant
