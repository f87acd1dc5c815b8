// The entry points that copy: all of them describe a box of one row, as graphs do, and hand it on.
#include "softgpu/copy.h"
#include "softgpu/stream.h"

namespace softgpu {
namespace {

// One end of a copy.
struct End {
    CUmemorytype type;
    const void* host;
    CUdeviceptr device;
};

End host(const void* pointer) { return {CU_MEMORYTYPE_HOST, pointer, 0}; }
End device(CUdeviceptr pointer) { return {CU_MEMORYTYPE_DEVICE, nullptr, pointer}; }
End either(CUdeviceptr pointer) { return {CU_MEMORYTYPE_UNIFIED, nullptr, pointer}; }

CUDA_MEMCPY3D line(const End& to, const End& from, size_t bytes) {
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = from.type;
    copy.srcHost = from.host;
    copy.srcDevice = from.device;
    copy.dstMemoryType = to.type;
    copy.dstHost = const_cast<void*>(to.host);
    copy.dstDevice = to.device;
    copy.WidthInBytes = bytes;
    copy.Height = copy.Depth = 1;
    return copy;
}

CUresult copy_now(const CUDA_MEMCPY3D& wanted, DefaultStream which) {
    ContextRef context;
    TRY(current_context(&context));
    Copy copy;
    TRY(plan_copy(context, wanted, &copy));
    if (copy.moves_nothing) return CUDA_SUCCESS;
    // Between places of the device, even this form does not wait for the end.
    return copy.touches_host ? enqueue_and_wait(nullptr, which, std::move(copy.operation))
                             : enqueue(nullptr, which, std::move(copy.operation));
}

CUresult copy_in_order(const CUDA_MEMCPY3D& wanted, CUstream stream, DefaultStream which) {
    ContextRef context;
    TRY(current_context(&context));
    Copy copy;
    TRY(plan_copy(context, wanted, &copy));
    if (copy.from_pageable) copy.take_snapshot();
    OpId done = 0;
    TRY(enqueue(stream, which, std::move(copy.operation), &done));
    if (done == 0) {
        // Captured: a graph reads its sources anew at each launch.
        if (copy.snapshot) copy.snapshot->bytes.clear();
        return CUDA_SUCCESS;
    }
    if (!copy.to_pageable) return CUDA_SUCCESS;
    // The driver stages such a copy, and returns when the caller's memory has been written. The stream may be of
    // another context than the current one.
    StreamRef its;
    ContextRef where;
    TRY(find_stream(stream, which, &its, &where));
    Engine& engine = engine_of(*where);
    engine.wait(done);
    return static_cast<CUresult>(engine.error());
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

PLAIN_AND_PTDS(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t bytes),
               copy_now(line(either(to), either(from), bytes), which))
PLAIN_AND_PTDS(cuMemcpyHtoD_v2, (CUdeviceptr to, const void* from, size_t bytes),
               copy_now(line(device(to), host(from), bytes), which))
PLAIN_AND_PTDS(cuMemcpyDtoH_v2, (void* to, CUdeviceptr from, size_t bytes),
               copy_now(line(host(to), device(from), bytes), which))
PLAIN_AND_PTDS(cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes),
               copy_now(line(device(to), device(from), bytes), which))

PLAIN_AND_PTSZ(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
               copy_in_order(line(either(to), either(from), bytes), stream, which))
PLAIN_AND_PTSZ(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void* from, size_t bytes, CUstream stream),
               copy_in_order(line(device(to), host(from), bytes), stream, which))
PLAIN_AND_PTSZ(cuMemcpyDtoHAsync_v2, (void* to, CUdeviceptr from, size_t bytes, CUstream stream),
               copy_in_order(line(host(to), device(from), bytes), stream, which))
PLAIN_AND_PTSZ(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
               copy_in_order(line(device(to), device(from), bytes), stream, which))
