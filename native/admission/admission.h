// The rules, pure: a tenant's standing and the knobs in, a verdict out. The tenants and the simulator call the same
// functions.
//
//   may_run   is a tenant's gate open? Asked at every edge: a tenant became busy or idle, a turn ended, a knob changed
//   may_copy  the same of its gate for long copies between host and GPU (bus.h)
//   admit     does this operation go at once, behind a gate, or only after less is in flight? Asked at every launch
#pragma once

#include <algorithm>
#include <cstdint>

#include "admission/knobs.h"

namespace admission {

constexpr uint32_t kProduction = 0, kStandard = 1, kOpportunistic = 2;  // the classes

// Whether this class ever passes gates under this rule.
inline bool is_gated(uint32_t rule, uint32_t tenant_class) {
    return rule == fair || (rule == strict && tenant_class != kProduction);
}

// How one tenant stands on one GPU.
struct Standing {
    uint32_t tenant_class;
    bool above_is_busy;  // a tenant of a higher class has work and does not tolerate overlap
    bool has_turn;       // it waits for none of its equals (turns.h)
    bool is_shut;        // by a controller
    bool over_rate;      // it has used more than its rate
    bool below_floor;    // it has got less than its floor
};

// It cannot use a turn, so it keeps none from its equals.
inline bool is_barred(bool is_shut, bool over_rate, bool below_floor) { return !below_floor && (is_shut || over_rate); }

inline bool may_run(uint32_t rule, const Standing& tenant) {
    if (!is_gated(rule, tenant.tenant_class)) return true;
    if (tenant.below_floor) return true;
    if (tenant.is_shut || tenant.over_rate || !tenant.has_turn) return false;
    return rule == fair || !tenant.above_is_busy;
}

// Copies take no turns, and wait for higher classes only while these copy, too.
inline bool may_copy(uint32_t rule, Standing tenant, bool above_copies) {
    tenant.has_turn = true;
    tenant.above_is_busy = above_copies;
    return may_run(rule, tenant);
}

enum class Verdict : uint8_t {
    go,    // straight to the driver
    gate,  // to the driver behind a gate that others may close
    wait,  // the launching thread waits until less is in flight, then asks again
};

constexpr float kUnknown = -1;
constexpr float kAloneUs = 5000;  // between two gates of a tenant without company

struct Seen {
    uint32_t tenant_class;
    bool has_company;  // a tenant that this one may have to wait for uses the GPU (company.h)
    bool gate_is_open;
    float since_gate_us;  // work in the stream since its last gate
    float in_flight_us;   // work in the stream that is not known to be done
    float operation_us;   // how long this one will run; kUnknown: never measured
    uint32_t operations_in_flight = 0;
    bool gate_is_ahead = false;   // the stream has yet to pass a gate that was put into it
    uint32_t linked_streams = 0;  // of the tenant have work, and wait for each other: they pass their gates on the CPU
};

// A channel of the driver holds about a thousand operations; a thread that adds one more spins in the driver and holds
// its lock.
constexpr uint32_t kMostOperations = 384;

struct Knobs {
    uint32_t rule;
    float gate_every_us;
    float in_flight_us;
};

// What linked streams have in flight when a gate closes nothing holds any more: it is to be little, and enough for the
// next kernel to be there when one ends.
inline float most_in_flight_us(const Knobs& knobs, const Seen& seen) {
    constexpr float kLinkedUs = 1000;  // in all linked streams
    if (!seen.linked_streams) return knobs.in_flight_us;
    float part_us = kLinkedUs / static_cast<float>(seen.linked_streams);
    return std::min(knobs.in_flight_us, std::max(part_us, 2 * seen.operation_us));
}

// A gate costs GPU time, so there is one for every `gate_every_us` of queued work, not for every operation: after a
// gate is closed, at most that much work, or one operation, can still run. An operation that is launched while the gate
// is closed has a gate ahead of it in its stream. A tenant without company queues seconds of work ahead: a newcomer
// shall not wait for all of it.
inline Verdict admit(const Knobs& knobs, const Seen& seen) {
    if (!is_gated(knobs.rule, seen.tenant_class)) return Verdict::go;
    if (!seen.has_company && seen.gate_is_open)
        return seen.since_gate_us + seen.operation_us > kAloneUs ? Verdict::gate : Verdict::go;
    if (seen.in_flight_us > most_in_flight_us(knobs, seen) || seen.operations_in_flight > kMostOperations)
        return Verdict::wait;
    if ((!seen.gate_is_open && !seen.gate_is_ahead) || seen.operation_us < 0) return Verdict::gate;
    return seen.since_gate_us + seen.operation_us > knobs.gate_every_us ? Verdict::gate : Verdict::go;
}

}  // namespace admission
