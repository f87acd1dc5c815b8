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

// Prefetching changes nothing here, where memory is where it is: it is only checked.
CUresult check_managed(CUdeviceptr pointer, size_t bytes) {
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    const std::shared_lock<std::shared_mutex> lock(memory().mutex);
    const bool managed = memory().allocations.covered(
        pointer, bytes, [](const auto& entry) { return entry.value.kind == MemoryKind::managed; });
    return managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult check_location(const CUmemLocation& location) {
    if (location.type == CU_MEM_LOCATION_TYPE_INVALID) return CUDA_ERROR_INVALID_VALUE;
    if (location.type != CU_MEM_LOCATION_TYPE_DEVICE || location.id == CU_DEVICE_CPU) return CUDA_SUCCESS;
    return machine_index(location.id) < 0 ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult prefetch(CUdeviceptr pointer, size_t bytes, CUmemLocation location, CUstream stream, DefaultStream which) {
    TRY(check_managed(pointer, bytes));
    TRY(check_location(location));
    return enqueue(stream, which, Operation{});
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

PLAIN_AND_PTSZ(cuMemPrefetchAsync_v2,
               (CUdeviceptr pointer, size_t bytes, CUmemLocation location, unsigned flags, CUstream stream),
               flags != 0 ? CUDA_ERROR_INVALID_VALUE : prefetch(pointer, bytes, location, stream, which))
