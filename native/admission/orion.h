// Orion (EuroSys 2024): operation by operation, beside production only what wants another resource and few SMs.
//
//   production's operation     goes
//   hold                       outstanding time below (kernels, not copies) > DUR_TH: nothing of it starts before all
//                              of it has ended
//   a copy over the host link  waits while one of production's runs
//   anything else              goes if production is idle, or if
//                              SMs held below + its SMs <= SM_TH and its class differs from that of production's last
//                              kernel, where an unknown class differs from every other
//
// The controller finds SM_TH and DUR_TH (src/cotenant/policies/orion.py).
#pragma once

#include "admission/moment.h"

namespace admission::modelled::orion {

enum Parameter { kSmThreshold, kOutstandingUs };

inline bool differ(Bound a, Bound b) { return a != b || a == Bound::unknown; }

inline Verdict decide(const Moment& moment, const float* parameters) {
    const Operation& operation = moment.operation;
    const Side& production = moment.gpu.production;
    const Side& below = moment.gpu.below;
    if (moment.tenant.tenant_class == kProduction) return Verdict::go;
    if (below.running > 0 && below.outstanding_us > parameters[kOutstandingUs]) return Verdict::wait;
    if (operation.kind == Kind::copy_to_device || operation.kind == Kind::copy_to_host)
        return production.copies > 0 ? Verdict::wait : Verdict::go;
    if (production.with_work == 0) return Verdict::go;
    bool is_small = below.sms + operation.sms <= parameters[kSmThreshold];
    return is_small && differ(operation.bound, production.bound) ? Verdict::go : Verdict::wait;
}

}  // namespace admission::modelled::orion
