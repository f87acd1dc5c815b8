// From a rule's number to its functions: the modelled ones, which see a Moment. A new rule is a header beside this one,
// a value in Modelled, the same value in `Rule` of src/cotenant/policies/interface.py, and a line in each switch.
#pragma once

#include "admission/chimera.h"
#include "admission/lanes.h"
#include "admission/moment.h"
#include "admission/orion.h"
#include "admission/paella.h"
#include "admission/reef.h"

namespace admission {

enum Modelled : uint32_t {
    kOrion = kFirstModelled,
    kReef,
    kLanes,
    kPaella,
    kChimera,
};

inline Verdict decide(uint32_t rule, const Moment& moment, const float* parameters) {
    switch (rule) {
        case kOrion:
            return orion::decide(moment, parameters);
        case kReef:
            return reef::decide(moment, parameters);
        case kLanes:
            return lanes::decide(moment);
        case kPaella:
            return paella::decide(moment, parameters);
        case kChimera:
            return chimera::decide(moment);
        default:
            return Verdict::go;
    }
}

inline Preemption preempt(uint32_t rule, const Moment& moment, const Running& running, const float* parameters) {
    switch (rule) {
        case kReef:
            return reef::preempt(moment, parameters);
        case kChimera:
            return chimera::preempt(moment, running, parameters);
        default:
            return Preemption::let_run;
    }
}

}  // namespace admission
