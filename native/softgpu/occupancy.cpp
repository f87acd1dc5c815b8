// cuOccupancy*: threads and shared memory are what limits a block; registers are not modelled.
#include <algorithm>

#include "softgpu/module.h"

namespace softgpu {
namespace {

constexpr unsigned warp = 32;

CUresult active_blocks(int* blocks, CUfunction handle, int block_size, size_t shared_bytes, unsigned flags) {
    if (!blocks || block_size <= 0 || flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) return CUDA_ERROR_INVALID_VALUE;
    FunctionRef function;
    TRY(find_function(handle, &function));
    const ContextRef context = function->context.lock();
    if (!context) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *blocks = blocks_per_sm(context->device, static_cast<unsigned>(block_size), shared_bytes);
    return CUDA_SUCCESS;
}

CUresult best_block_size(int* grid, int* block, CUfunction handle, CUoccupancyB2DSize shared_for, size_t shared_bytes,
                         int limit, unsigned flags) {
    if (!grid || !block || flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) return CUDA_ERROR_INVALID_VALUE;
    FunctionRef function;
    TRY(find_function(handle, &function));
    const ContextRef context = function->context.lock();
    if (!context) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    int largest = function_attribute(*function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    if (limit > 0) largest = std::min(largest, limit);
    int best_threads = 0;
    for (int size = largest; size > 0; size = (size - 1) / static_cast<int>(warp) * static_cast<int>(warp)) {
        const size_t shared = shared_for ? shared_for(size) : shared_bytes;
        const int resident = blocks_per_sm(context->device, static_cast<unsigned>(size), shared);
        if (resident * size <= best_threads) continue;
        best_threads = resident * size;
        *block = size;
        *grid = resident * device_spec(context->device)->sms;
    }
    return best_threads > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
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

DRIVER_API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int block_size,
                                                       size_t shared_bytes) {
    return entry([&] { return active_blocks(blocks, function, block_size, shared_bytes, 0); });
}
DRIVER_API cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function, int block_size,
                                                                size_t shared_bytes, unsigned int flags) {
    return entry([&] { return active_blocks(blocks, function, block_size, shared_bytes, flags); });
}
DRIVER_API cuOccupancyMaxPotentialBlockSize(int* grid, int* block, CUfunction function, CUoccupancyB2DSize shared_for,
                                            size_t shared_bytes, int limit) {
    return entry([&] { return best_block_size(grid, block, function, shared_for, shared_bytes, limit, 0); });
}
DRIVER_API cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block, CUfunction function,
                                                     CUoccupancyB2DSize shared_for, size_t shared_bytes, int limit,
                                                     unsigned int flags) {
    return entry([&] { return best_block_size(grid, block, function, shared_for, shared_bytes, limit, flags); });
}
DRIVER_API cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, CUfunction handle, int blocks, int block_size) {
    return entry([&] {
        if (!bytes || blocks <= 0 || block_size <= 0) return CUDA_ERROR_INVALID_VALUE;
        FunctionRef function;
        TRY(find_function(handle, &function));
        const ContextRef context = function->context.lock();
        if (!context) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
        if (blocks_per_sm(context->device, static_cast<unsigned>(block_size), 0) < blocks) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const auto attribute = [&](CUdevice_attribute which) {
            return static_cast<size_t>(device_attribute(context->device, which));
        };
        *bytes =
            std::min(attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
                     attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR) / static_cast<size_t>(blocks));
        return CUDA_SUCCESS;
    });
}
