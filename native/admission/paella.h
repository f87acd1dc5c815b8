// Paella (SOSP 2023): one dispatcher sends a kernel when it fits, the shortest rest first, the neglected before that.
//
//   order    the request with least left to run first;
//            while one's deficit is over the threshold (DEFICIT is set): the tenant of lowest rank first
//   it goes  when the free SMs hold all of it, and it is the first of those that wait
//            or when fewer than AHEAD operations run that did not fit, and it is the first of all
//
// AHEAD keeps the hardware from running dry while the next is chosen. What is sent ahead is of the first job: it would
// fill those places with its own next kernels, and leave none to the others. The controller
// (src/cotenant/policies/paella.py) counts deficits and ranks by them.
#pragma once

#include <algorithm>

#include "admission/moment.h"

namespace admission::modelled::paella {

enum Parameter { kAhead, kDeficit };

inline Verdict decide(const Moment& moment, const float* parameters) {
    const Gpu& gpu = moment.gpu;
    bool neglected = parameters[kDeficit] > 0;
    bool fits = std::min(moment.operation.sms, gpu.sms) <= gpu.free_sms;
    if (!fits && static_cast<float>(gpu.squeezed) >= parameters[kAhead]) return Verdict::wait;
    uint32_t first_waiting = neglected ? gpu.lowest_rank_waiting : gpu.least_left_waiting;
    uint32_t first_of_all = neglected ? gpu.lowest_rank_tenant : gpu.least_left_tenant;
    return moment.tenant.number == (fits ? first_waiting : first_of_all) ? Verdict::go : Verdict::wait;
}

}  // namespace admission::modelled::paella
