// cuMemAlloc and its relatives.
#include "softgpu/driver.h"
#include "softgpu/memory.h"

namespace softgpu {
namespace {

constexpr uint64_t pitch_alignment = 512;

CUresult allocate_now(CUdeviceptr* out, uint64_t bytes, MemoryKind kind) {
    return in_context([&](const ContextRef& context) -> CUresult {
        if (!out || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
        TRY(unsafe_during_capture());
        return allocate(context, bytes, kind, out);
    });
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

DRIVER_API cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
    return entry([&]() -> CUresult {
        if (!bytes) return CUDA_ERROR_INVALID_VALUE;
        const model::DeviceSpec* const spec = device_spec(device);
        if (!spec) return CUDA_ERROR_INVALID_DEVICE;
        *bytes = spec->memory_bytes;
        return CUDA_SUCCESS;
    });
}

DRIVER_API cuMemGetInfo_v2(size_t* free, size_t* total) {
    return in_context([&](const ContextRef& context) -> CUresult {
        if (!free || !total) return CUDA_ERROR_INVALID_VALUE;
        MemoryInfo info;
        TRY(memory_info(device_of(*context), &info));
        *free = info.free_bytes;
        *total = info.total_bytes;
        return CUDA_SUCCESS;
    });
}

DRIVER_API cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) {
    return allocate_now(pointer, bytes, MemoryKind::device);
}

DRIVER_API cuMemAllocPitch_v2(CUdeviceptr* pointer, size_t* pitch, size_t width, size_t height, unsigned element) {
    if (!pitch || width == 0 || height == 0 || (element != 4 && element != 8 && element != 16)) {
        return in_context([](const ContextRef&) { return CUDA_ERROR_INVALID_VALUE; });
    }
    *pitch = round_up(width, pitch_alignment);
    uint64_t bytes;
    if (__builtin_mul_overflow(*pitch, height, &bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    return allocate_now(pointer, bytes, MemoryKind::device);
}

DRIVER_API cuMemAllocManaged(CUdeviceptr* pointer, size_t bytes, unsigned flags) {
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) {
        return in_context([](const ContextRef&) { return CUDA_ERROR_INVALID_VALUE; });
    }
    return allocate_now(pointer, bytes, MemoryKind::managed);
}

DRIVER_API cuMemFree_v2(CUdeviceptr pointer) {
    return in_context([&](const ContextRef&) -> CUresult {
        if (pointer == 0) return CUDA_SUCCESS;
        TRY(unsafe_during_capture());
        return free_device_memory(pointer);
    });
}
