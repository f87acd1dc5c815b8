// Putting work into a stream, or into the graph that is captured there.
#pragma once

#include "softgpu/stream.h"

namespace softgpu {

// What goes into a stream in one call: what runs, one after another, and the graph node that would stand for it.
struct StreamWork {
    std::vector<Operation> steps;
    NodeBody node;
};

CUresult enqueue_work(CUstream stream, DefaultStream which, StreamWork work, OpId* done = nullptr);

}  // namespace softgpu
