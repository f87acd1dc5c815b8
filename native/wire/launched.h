// What the tenants of a GPU have launched there, as they say themselves (Slot::launched), for rules that are asked at a
// launch (tenant/launch_rule.h). Any word may hold anything: sums are brought into range.
#pragma once

#include "admission/moment.h"
#include "wire/wire.h"

namespace wire {

constexpr uint64_t kLongestLeftNs = 10000000000;  // of production's, however much more it says

// Production's and the lower classes' sides of a Moment; `now`: CLOCK_MONOTONIC. A tenant that is dead or stopped, or
// has no work, has nothing on the GPU; the asking tenant's own is always counted.
struct Sides {
    admission::Side production, below;
};
Sides sides_of(Segment& segment, int index, int gpu, uint64_t now);

// The parameters of the rule, as the policy's controller has set them.
void parameters_of(const Header& header, float out[admission::kParameters]);

}  // namespace wire
