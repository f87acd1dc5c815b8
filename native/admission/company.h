// Whether a tenant has company, pure: does a tenant use the GPU that this one may have to wait for? A tenant without
// company passes few gates (admission.h). The tenants and the simulator call the same function.
//
//   company = a tenant of its own or a higher class uses the GPU, or under `fair` any tenant; or a controller steers it
#pragma once

#include <cstdint>

#include "admission/admission.h"

namespace admission {

// Who else uses the GPU, with work or without, by their class against the tenant's.
struct Others {
    bool above, equal, below;
};

inline bool has_company(uint32_t rule, const Others& others, bool is_steered) {
    return is_steered || others.above || others.equal || (others.below && rule == fair);
}

}  // namespace admission
