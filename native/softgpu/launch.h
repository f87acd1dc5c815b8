// Kernel launches.
#pragma once

#include "softgpu/module.h"
#include "softgpu/stream.h"

namespace softgpu {

struct Launch {
    FunctionRef function;
    unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
    unsigned shared_bytes = 0;
    Arguments arguments;
    std::vector<void*> argument_pointers;  // into `arguments`: what graphs answer as kernelParams
};

struct LaunchRequest {
    CUfunction function;
    unsigned grid[3], block[3];
    unsigned shared_bytes;
    void** parameters;
    void** extra;
};

CUresult make_launch(const LaunchRequest& request, LaunchRef* out);
// What runs. The context must be the one whose engine runs it, and outlives that engine.
Operation operation_of(Context& context, const LaunchRef& launch);

}  // namespace softgpu
