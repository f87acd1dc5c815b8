// Whether production keeps cut kernels off the GPU in the gaps of its bursts, pure: native/tenant/hold.h says why, and
// how. The tenants and the simulator call the same functions.
#pragma once

#include <cstdint>

namespace admission {

// How many gaps a burst has, a running mean, once the last burst had so many.
inline float gaps_in_a_burst(float mean, uint32_t in_last) {
    constexpr float kBursts = 32;
    return mean + (static_cast<float>(in_last) - mean) / kBursts;
}

// To hold takes a launching thread some 80 us in each burst, mostly while the GPU works.
inline bool is_worth_holding(float mean, uint32_t so_far) {
    constexpr float kFewest = 0.2f;
    return so_far > 0 || mean > kFewest;
}

}  // namespace admission
