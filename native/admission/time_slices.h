// How long the hardware shall let a tenant's channels run before another's, pure. The tenants and the simulator call
// the same functions. In microseconds, for a weight w; 0: leave the driver's.
//
//                    kernels                                      copies
//   production       1 s; 2, 3 or 20 ms * w where it shares       10 ms; 0 where it shares
//   standard,        2 ms * f where it shares; else, beside a     0
//   opportunistic    class above, 1 ms to drain or 30 us to cut   30 us
//                    (0.5 ms where one stands still)
//
// Beside a process that is no tenant, which has the driver's slice, a kernel with slices of 30 us stands still
// (standstill.h): on an H200 it did no step in 4 s, and its part of the GPU was lost. A class above that has rested for
// a second does not count beside such processes: the first burst after such a rest may wait for the driver's slice to
// end, as it may for one of these processes.
//
// A tenant shares slices while it is below its floor and for a moment after that. Production shares them as long as
// somebody does, and where another production job uses the GPU. Where a kernel of a lower class waits cut, each end of
// a slice of production's lets that kernel run for a moment, whether or not the other production job has anything to
// do, and takes production 0.5 ms on an H200: with slices of 2, 5 and 10 ms its requests of 10 ms took 1.28, 1.14
// and 1.09 times as long. So production's slices are 20 ms then, and 3 ms where two production jobs have been at work
// at the same time: one waits for the other. For a floor they are 2 ms: all slices together make the shares.
//
// A tenant below its floor runs beside all others, and its weight says nothing about its floor. So
//
//   f = 1.5 * floor * A / (1 - F), at least 1     A: the weights of the production jobs together, at least 1
//                                                 F: all floors together
//
// With 1 instead of 1.5 all floors would just be kept where everybody always has work, if a switch took no time.
#pragma once

#include <algorithm>
#include <cstdint>

#include "admission/admission.h"

namespace admission {

// All in thousandths. What others say may be more than there is.
inline uint32_t weight_for_floor(uint32_t floor, uint32_t floors, uint32_t weights_above) {
    constexpr double kMargin = 1.5;
    constexpr uint32_t kMostFloors = 900;
    uint32_t rest = 1000 - std::min(std::max(floors, floor), kMostFloors);
    double needed = kMargin * floor * std::max(weights_above, 1000u) / rest;
    return static_cast<uint32_t>(std::clamp(needed, 1000.0, 1e6));
}

// What the slice depends on.
struct Slicing {
    uint32_t tenant_class;
    bool shares;                // with somebody that is not simply to wait
    uint32_t weight = 1000;     // thousandths; of a lower class that shares weight_for_floor
    bool has_above = true;      // a higher class uses the GPU, and does not rest
    bool cuts = false;          // admission::shall_cut
    bool overlaps = false;      // an equal is on the GPU, too, or a kernel of a lower class
    bool stands_still = false;  // a kernel that is cut (standstill.h)
    // Of production: kernels of a lower class are cut and nobody is below a floor; another was at work with it lately.
    bool cuts_below = false, contends = false;
};

constexpr uint64_t kRestNs = 1000000000;
constexpr uint32_t kDrainUs = 1000, kCutUs = 30, kStandstillUs = 500;
constexpr uint32_t kDriverUs = 2048;

// What the hardware gives to one that has asked for this.
inline uint32_t slice_held(uint32_t asked_us) { return asked_us ? asked_us : kDriverUs; }

// Whether a kernel of a tenant that a higher class interrupts is stopped in the middle, with this slice.
inline bool is_cut_at(uint32_t slice_us) { return slice_us && slice_us < kDrainUs; }

// 0: leave the driver's slice. A production job that is on the GPU stays on it. A job that delays a higher class is
// either drained or cut: with short kernels it stops at its next gate by itself, and a cut would only cost a save of
// all registers; a long kernel is cut at once. A job that delays nobody keeps the driver's slice: equals drain. It also
// keeps it while an equal is on with it, which one of the two should not be, or a lower class's kernel that has not
// ended: if both had slices shorter than a switch takes, neither's kernel would ever end.
inline uint32_t time_slice_for(const Slicing& slicing) {
    constexpr uint32_t kProductionUs = 1000000;
    constexpr uint32_t kSharedUs = 2000, kAboveCutUs = 3000, kUncontendedUs = 20000;  // for a weight of 1
    if (slicing.shares) {
        uint64_t us = !slicing.cuts_below ? kSharedUs : slicing.contends ? kAboveCutUs : kUncontendedUs;
        return std::clamp(static_cast<uint32_t>(us * slicing.weight / 1000), kCutUs, kProductionUs);
    }
    if (slicing.tenant_class == kProduction) return kProductionUs;
    if (!slicing.has_above || slicing.overlaps) return 0;
    return !slicing.cuts ? kDrainUs : slicing.stands_still ? kStandstillUs : kCutUs;
}

// For copies, likewise: an opportunistic job's copy is cut where others wait behind it, and the kernel module's own
// copies and clears do not interrupt a production job's.
inline uint32_t copy_slice_for(const Slicing& slicing) {
    constexpr uint32_t kProductionUs = 10000, kOpportunisticUs = 30;
    if (slicing.tenant_class == kOpportunistic) return kOpportunisticUs;
    return slicing.tenant_class == kProduction && !slicing.shares ? kProductionUs : 0;
}

struct TimeSlices {
    uint32_t kernels_us, copies_us;

    bool operator==(const TimeSlices& other) const {
        return kernels_us == other.kernels_us && copies_us == other.copies_us;
    }
};

}  // namespace admission
