// The rules, pure: what is seen and the knobs in, a verdict out. The tenants and the simulator call the same functions.
//
//   may_run   is a tenant's gate open? asked at every edge: somebody went busy or idle, a turn ended, a knob changed
//   admit     how does this operation go: at once, behind a gate, or not before others are done? asked at every launch
#pragma once

#include <cstdint>

namespace admission {

enum Rule : uint32_t {
    none = 0,    // everybody goes
    strict = 1,  // a class goes only while every class above it is idle; equals below production take turns by weight
    fair = 2,    // all take turns by weight, whatever their class
};
constexpr uint32_t kProduction = 0;

// Whether this class ever passes gates under this rule.
inline bool is_gated(uint32_t rule, uint32_t tenant_class) {
    return rule == fair || (rule == strict && tenant_class != kProduction);
}

// How one tenant stands on one GPU.
struct Standing {
    uint32_t tenant_class;
    bool above_is_busy;  // somebody of a class above has work and does not tolerate company
    bool has_turn;       // none of its equals that have work is to go first
    bool is_shut;        // by a controller
    bool over_rate;      // it has used more than the rate it was given
    bool below_floor;    // it has got less than it was promised
};

inline bool may_run(uint32_t rule, const Standing& tenant) {
    if (!is_gated(rule, tenant.tenant_class)) return true;
    if (tenant.below_floor) return true;
    if (tenant.is_shut || tenant.over_rate || !tenant.has_turn) return false;
    return rule == fair || !tenant.above_is_busy;
}

// Of two equals that have work, whether `a` goes before `b`. The one that holds the turn keeps it until it is `turn_us`
// ahead; otherwise whoever has used least, for its weight, is next.
struct Equal {
    uint64_t turn_key_ns;  // GPU time used, divided by weight
    bool holds_turn;
    uint32_t number;
};
inline bool goes_before(const Equal& a, const Equal& b, uint32_t turn_us) {
    auto key = [&](const Equal& one) {
        return static_cast<int64_t>(one.turn_key_ns) - (one.holds_turn ? int64_t{turn_us} * 1000 : 0);
    };
    return key(a) != key(b) ? key(a) < key(b) : a.number < b.number;
}

enum class Verdict : uint8_t {
    go,    // straight to the driver
    gate,  // to the driver behind a gate that others may close
    wait,  // the launching thread waits until less is in flight, then asks again
};

constexpr float kUnknown = -1;

struct Seen {
    uint32_t tenant_class;
    bool has_company;  // somebody whom this tenant may have to wait for uses the GPU
    bool gate_is_open;
    float since_gate_us;  // work in the stream since its last gate
    float in_flight_us;   // work in the stream that is not known to be done
    float operation_us;   // how long this one will run; kUnknown: never measured
};

struct Knobs {
    uint32_t rule;
    float gate_every_us;
    float in_flight_us;
};

// A gate costs GPU time, so there is one for every `gate_every_us` of queued work, not for every operation: what can
// still run after a gate has been closed is at most that much, or one operation. Nothing is queued past a gate that is
// closed already.
inline Verdict admit(const Knobs& knobs, const Seen& seen) {
    if (!is_gated(knobs.rule, seen.tenant_class)) return Verdict::go;
    if (!seen.has_company && seen.gate_is_open) return Verdict::go;
    if (seen.in_flight_us > knobs.in_flight_us) return Verdict::wait;
    if (!seen.gate_is_open || seen.operation_us < 0) return Verdict::gate;
    return seen.since_gate_us + seen.operation_us > knobs.gate_every_us ? Verdict::gate : Verdict::go;
}

}  // namespace admission
