// One copy, checked and ready to be queued.
#pragma once

#include "softgpu/memory.h"

namespace softgpu {

// Where the driver reads pageable memory before the call returns, this holds what it read.
struct Snapshot {
    std::vector<uint8_t> bytes;  // rows without gaps; empty: the source itself is read when the copy runs
};

struct Copy {
    Operation operation;
    bool moves_nothing = false;
    bool from_pageable = false;
    bool to_pageable = false;
    bool touches_host = false;
    std::shared_ptr<Snapshot> snapshot;  // the operation looks here first
    std::function<void()> take_snapshot;
};

CUresult plan_copy(const ContextRef& context, const CUDA_MEMCPY3D& wanted, Copy* out);

}  // namespace softgpu
