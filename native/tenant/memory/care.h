// What the memory ledger needs besides the calls that take and give: the limit, and what the driver takes by itself.
//
// Contexts, modules, printf buffers and the like are the driver's own allocations; no call says how large they are.
// NVML knows what the process has on the GPU altogether, so the rest is theirs. It is asked when the process first uses
// a GPU, and then once a second, but only in a tenant with a limit; where NVML does not know the process, they count
// nothing.
#pragma once

#include "tenant/driver_calls.h"
#include "wire/wire.h"

namespace tenant {

class Membership;

}  // namespace tenant
