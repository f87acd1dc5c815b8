// The launch-path rules: may this operation go, or does it wait behind a gate? Pure: what is seen and the knobs in,
// a verdict out. The simulator calls the same functions.
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

// strict: a class runs only while every class above it is idle, so all but the highest pass a gate.
inline Verdict admit(uint32_t rule, uint32_t tenant_class) {
    return rule == strict && tenant_class != kHighestClass ? Verdict::gate : Verdict::go;
}

}  // namespace admission
