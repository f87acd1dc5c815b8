// REEF (OSDI 2022): what runs below production is killed when production's request begins, and pads the SMs that
// production leaves.
//
//   production's operation  goes; at the start of a request all that runs below is killed, to begin anew later
//   below, always           at most AHEAD operations on the device, so that there is little to kill
//   below, padding          beside a kernel of production: on the SMs it leaves, if it ends there no later than that
//                               us * max(1, SMs / free SMs) <= what is left of production's
//
// A kernel that was admitted as padding is not killed when the request's next kernel starts: by then it is about to
// end.
#pragma once

#include <algorithm>

#include "admission/moment.h"

namespace admission::modelled::reef {

enum Parameter { kAhead, kLetsRun };  // the second, not 0: where kernels cannot be killed

inline float padded_us(const Operation& operation, float free_sms) {
    return operation.us * std::max(1.0f, operation.sms / free_sms);
}

inline Verdict decide(const Moment& moment, const float* parameters) {
    const Gpu& gpu = moment.gpu;
    if (moment.tenant.tenant_class == kProduction) return Verdict::go;
    if (static_cast<float>(gpu.below.running) >= parameters[kAhead]) return Verdict::wait;
    if (gpu.production.with_work == 0) return Verdict::go;
    if (gpu.free_sms < 1) return Verdict::wait;
    return padded_us(moment.operation, gpu.free_sms) <= gpu.production.left_us ? Verdict::go : Verdict::wait;
}

inline Preemption preempt(const Moment& moment, const float* parameters) {
    return moment.operation.begins_request && parameters[kLetsRun] == 0 ? Preemption::kill : Preemption::let_run;
}

}  // namespace admission::modelled::reef
