// What a kernel needs of an SM. Threads and shared memory are what limits a block; every kernel has 32 registers a
// thread, which fit however many threads there are.
#include <algorithm>

#include "softgpu/module.h"

namespace softgpu {
namespace {

constexpr unsigned warp = 32;
constexpr int registers = 32;

CUresult active_blocks(int* blocks, CUfunction handle, int block_size, size_t shared_bytes) {
    if (!blocks || block_size <= 0) return CUDA_ERROR_INVALID_VALUE;
    FunctionRef function;
    TRY(find_function(handle, &function));
    const ContextRef context = function->context.lock();
    if (!context) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *blocks = blocks_per_sm(context->device, static_cast<unsigned>(block_size), shared_bytes);
    return CUDA_SUCCESS;
}

CUresult attribute_of(int* value, CUfunction_attribute which, CUfunction handle) {
    if (!value) return CUDA_ERROR_INVALID_VALUE;
    FunctionRef function;
    TRY(find_function(handle, &function));
    const ContextRef context = function->context.lock();
    if (!context) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    switch (which) {
        case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
            *value = device_attribute(context->device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
            return CUDA_SUCCESS;
        case CU_FUNC_ATTRIBUTE_NUM_REGS:
            *value = registers;
            return CUDA_SUCCESS;
        case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
        case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:  // none has clusters
            *value = 0;
            return CUDA_SUCCESS;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

}  // namespace

int blocks_per_sm(CUdevice device, unsigned threads, size_t shared_bytes) {
    const auto attribute = [device](CUdevice_attribute which, int otherwise) {
        const int value = device_attribute(device, which);
        return static_cast<unsigned>(value > 0 ? value : otherwise);
    };
    const unsigned whole_warps = (threads + warp - 1) / warp * warp;
    if (whole_warps == 0 || threads > attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024)) return 0;
    unsigned blocks = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048) / whole_warps;
    blocks = std::min(blocks, attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32));
    if (shared_bytes > 0) {
        const size_t room = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472);
        blocks = static_cast<unsigned>(std::min<size_t>(blocks, room / shared_bytes));
    }
    return static_cast<int>(blocks);
}

}  // namespace softgpu

using namespace softgpu;

ENTRY(cuOccupancyMaxActiveBlocksPerMultiprocessor,
      (int* blocks, CUfunction function, int block_size, size_t shared_bytes),
      active_blocks(blocks, function, block_size, shared_bytes))

ENTRY(cuFuncGetAttribute, (int* value, CUfunction_attribute which, CUfunction function),
      attribute_of(value, which, function))
