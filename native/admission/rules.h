// From a rule's number to its functions: the modelled ones, which see a Moment. A new rule is a value in `Rule`
// (knobs.h), a header beside this one, and a line in each switch.
#pragma once

#include "admission/chimera.h"
#include "admission/lanes.h"
#include "admission/moment.h"
#include "admission/orion.h"
#include "admission/paella.h"
#include "admission/reef.h"

namespace admission {

// Those that a live tenant follows too: it asks before each launch (tenant/launch_rule.h).
inline bool is_asked_live(uint32_t rule) { return rule == orion || rule == reef; }

inline Verdict decide(uint32_t rule, const Moment& moment, const float* parameters) {
    switch (rule) {
        case orion:
            return modelled::orion::decide(moment, parameters);
        case reef:
            return modelled::reef::decide(moment, parameters);
        case lanes:
            return modelled::lanes::decide(moment);
        case paella:
            return modelled::paella::decide(moment, parameters);
        case chimera:
            return modelled::chimera::decide(moment);
        default:
            return Verdict::go;
    }
}

inline Preemption preempt(uint32_t rule, const Moment& moment, const Running& running, const float* parameters) {
    switch (rule) {
        case reef:
            return modelled::reef::preempt(moment, parameters);
        case chimera:
            return modelled::chimera::preempt(moment, running, parameters);
        default:
            return Preemption::let_run;
    }
}

}  // namespace admission
