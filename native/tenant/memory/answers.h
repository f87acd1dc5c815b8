// What a tenant with a limit is told about a GPU's memory: as if the limit were all that the GPU has.
#pragma once

#include "tenant/driver_calls.h"

namespace tenant {

struct MemoryAnswer {
    uint64_t total;
    uint64_t free;
    uint64_t used;  // by the tenant
};

// Changes what the driver said of the whole GPU to what this tenant can have; false: it has no limit, nothing changed.
bool limit_answer(const uint8_t uuid[16], MemoryAnswer* answer);
bool limit_answer(CUdevice device, MemoryAnswer* answer);
bool limit_answer_here(MemoryAnswer* answer);  // of the current context's GPU

}  // namespace tenant
