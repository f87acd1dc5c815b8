// Salus (MLSys 2020): iterations are never interleaved within a lane, and lanes run side by side.
//
//   inside an iteration        goes
//   the first of an iteration  goes when no other tenant of its lane is inside one, and it has the lowest rank of those
//                              that wait in the lane
//
// The controller (src/cotenant/policies/salus.py) assigns lanes and ranks, and shuts tenants for which memory has no
// lane. Since a whole iteration is admitted, two iterations that each hold half of what both need cannot wait for each
// other.
#pragma once

#include "admission/moment.h"

namespace admission::modelled::lanes {

inline Verdict decide(const Moment& moment) {
    if (!moment.operation.begins_request) return Verdict::go;
    bool is_next = moment.tenant.lane_next == moment.tenant.number;
    return is_next && !moment.tenant.lane_is_taken ? Verdict::go : Verdict::wait;
}

}  // namespace admission::modelled::lanes
