// The launch-path rules: may this operation go, or does it go behind a gate? Pure: what is seen and the knobs in, a
// verdict out. The simulator calls the same functions.
#pragma once

#include <cstdint>

namespace admission {

// Values shared with wire::Rule and wire::Class, which are the same numbers in shared memory.
enum Rule : uint32_t { none = 0, strict = 1 };
constexpr uint32_t kHighestClass = 0;

enum class Verdict : uint8_t {
    go,    // straight to the driver
    gate,  // to the driver behind a gate that others may close
};

constexpr float kUnknown = -1;

struct Seen {
    uint32_t tenant_class;
    bool gate_is_open;
    float since_gate_us;  // work in the stream since its last gate
    float operation_us;   // how long this one will run; kUnknown: never measured
};

struct Knobs {
    uint32_t rule;
    float gate_every_us;
};

// Whether this class ever passes gates under this rule.
inline bool is_gated(uint32_t rule, uint32_t tenant_class) { return rule == strict && tenant_class != kHighestClass; }

// strict: a class runs only while every class above it is idle. A gate costs GPU time, so there is one for every
// `gate_every_us` of queued work, not for every operation: what can still run after a gate has been closed is at most
// that much, or one operation. Nothing is queued past a gate that is closed already.
inline Verdict admit(const Knobs& knobs, const Seen& seen) {
    if (!is_gated(knobs.rule, seen.tenant_class)) return Verdict::go;
    if (!seen.gate_is_open || seen.operation_us < 0) return Verdict::gate;
    return seen.since_gate_us + seen.operation_us > knobs.gate_every_us ? Verdict::gate : Verdict::go;
}

}  // namespace admission
