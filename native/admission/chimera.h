// Chimera (ASPLOS 2015): each time production's kernel finds the GPU taken, what runs there is stopped in the way that
// is cheapest.
//
//   delay of production    drain     left
//                          let run   min(left, what is left of production's request) * the part of its SMs, or of the
//                                    bandwidth, that it does not get
//                          cut       cut_us
//   work lost              drain 0, let run 0, cut cut_us
//
//   of the ways whose delay is within LATENCY: the one that loses least, then the one of the shortest delay;
//   where none is: the one of the shortest delay
//
//   production's operation   goes
//   below                    goes on SMs that are free
//
// The paper's third way, to flush a thread block and run it again, needs kernels that are known to be idempotent; we
// know that of none.
#pragma once

#include <algorithm>
#include <iterator>

#include "admission/moment.h"

namespace admission::modelled::chimera {

enum Parameter { kLatencyUs };

inline Verdict decide(const Moment& moment) {
    const Gpu& gpu = moment.gpu;
    if (moment.tenant.tenant_class == kProduction || gpu.production.with_work == 0) return Verdict::go;
    return std::min(moment.operation.sms, gpu.sms) <= gpu.free_sms ? Verdict::go : Verdict::wait;
}

// The part of its demand that a kernel does not get beside another kernel.
inline float part_missing(float wanted, float others, float there_is) {
    wanted = std::min(wanted, there_is);
    float missing = wanted + std::min(others, there_is) - there_is;
    return wanted > 0 && missing > 0 ? missing / wanted : 0;
}

inline float delay_beside_us(const Moment& moment, const Running& running) {
    float together_us = std::min(running.left_us, std::max(moment.operation.us, moment.tenant.remaining_us));
    return together_us * std::max(part_missing(moment.operation.sms, running.operation.sms, moment.gpu.sms),
                                  part_missing(moment.operation.gbps, running.operation.gbps, moment.gpu.memory_gbps));
}

// `moment` describes production's kernel, `running` the kernel that delays it.
inline Preemption preempt(const Moment& moment, const Running& running, const float* parameters) {
    struct Way {
        Preemption how;
        float delay_us, lost_us;
    };
    const Way ways[] = {{Preemption::drain, running.left_us, 0},
                        {Preemption::let_run, delay_beside_us(moment, running), 0},
                        {Preemption::cut, moment.gpu.cut_us, moment.gpu.cut_us}};
    float latency_us = parameters[kLatencyUs];
    auto cheaper = [&](const Way& a, const Way& b) {
        bool a_keeps = a.delay_us <= latency_us, b_keeps = b.delay_us <= latency_us;
        if (a_keeps != b_keeps) return a_keeps;
        if (a_keeps && a.lost_us != b.lost_us) return a.lost_us < b.lost_us;
        return a.delay_us < b.delay_us;
    };
    return std::min_element(std::begin(ways), std::end(ways), cheaper)->how;
}

}  // namespace admission::modelled::chimera
