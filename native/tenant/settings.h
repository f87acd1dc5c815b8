// The settings that `cotenant run` passes in the environment, or an administrator in a file (identity_file.h), and how
// a tenant shows them in its slot.
#pragma once

#include "wire/wire.h"

namespace tenant {

constexpr const char* kClassNames[wire::kClasses] = {"production", "standard", "opportunistic"};

// COTENANT_CLASS; standard where it says nothing.
wire::Class class_from_environment();

// COTENANT_WEIGHT, COTENANT_SLOWDOWN and COTENANT_FLOOR: "1.5" or "5%", into thousandths.
uint32_t thousandths_from_environment(const char* name, uint32_t otherwise);

// COTENANT_CUT_COST: what a cut costs on this GPU, in microseconds; less than 0 where it says nothing, and the cost is
// learned (native/admission/cut.h).
float cut_cost_from_environment();

// COTENANT_HOLD: whether cut kernels are kept off the GPU in the gaps of a burst (hold.h); 0: they are not.
bool hold_from_environment();

// COTENANT_SEGMENT or, where it says nothing, the administrator's; null: neither.
const char* segment_from_environment();

// COTENANT_RUN_ID: 32 hexadecimal digits. Left as it is where it says nothing.
void run_id_from_environment(uint8_t out[16]);

// COTENANT_NAME, zero-terminated and cut to the room that there is; nothing where it says nothing.
void job_from_environment(char* out, size_t room);

}  // namespace tenant
