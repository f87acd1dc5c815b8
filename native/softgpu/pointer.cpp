// What an address is: cuPointerGetAttribute and cuMemGetAddressRange.
#include <cstring>

#include "softgpu/pool.h"
#include "softgpu/vmm.h"

namespace softgpu {
namespace {

template <typename Value>
CUresult say(void* out, Value value) {
    std::memcpy(out, &value, sizeof value);
    return CUDA_SUCCESS;
}

// What the pointer lies in, with the lock held; either may be null.
struct Found {
    const Allocations::Entry* allocation;
    const RangeTable<uint64_t>::Entry* reservation;
};

Found find(CUdeviceptr pointer) {
    return {memory().allocations.containing(pointer), memory().reservations.containing(pointer)};
}

unsigned long long handle_types(const Allocation& allocation) {
    return allocation.physical ? static_cast<unsigned long long>(allocation.physical->properties.requestedHandleTypes)
                               : 0;
}

int access_flags(const Allocation& allocation, int device) {
    if (allocation.kind != MemoryKind::mapping) return CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
    const auto access = allocation.access.find(device);
    if (access == allocation.access.end()) return CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE;
    return access->second == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE
           : access->second == CU_MEM_ACCESS_FLAGS_PROT_READ    ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ
                                                                : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE;
}

CUresult attribute_of(const Allocations::Entry& entry, const Found& found, CUdeviceptr pointer, int current_device,
                      CUpointer_attribute attribute, void* out) {
    const Allocation& allocation = entry.value;
    const bool managed = allocation.kind == MemoryKind::managed;
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_CONTEXT:
            return say(out, allocation.context);
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            return say(out, static_cast<unsigned>(allocation.on_host() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE));
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
            return say(out, pointer);
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
            return allocation.on_host() || managed ? say(out, pointer) : CUDA_ERROR_INVALID_VALUE;
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
            return say(out, static_cast<int>(0));
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
            return say(out, static_cast<int>(allocation.kind == MemoryKind::device));
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
            return say(out, static_cast<unsigned long long>(allocation.id));
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
            return say(out, static_cast<int>(managed));
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            return say(out, allocation.device);
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
            return say(out, found.reservation ? found.reservation->base : entry.base);
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
            return say(out, static_cast<size_t>(found.reservation ? found.reservation->size : entry.size));
        case CU_POINTER_ATTRIBUTE_MAPPED:
            return say(out, static_cast<int>(1));
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
            return say(out, handle_types(allocation));
        case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
            return say(out, access_flags(allocation, current_device));
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
            return say(out, allocation.pool ? allocation.pool->handle : nullptr);
        case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
            return say(out, static_cast<size_t>(entry.size));
        case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
            return say(out, entry.base);
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

// Addresses that are reserved, with nothing mapped there.
CUresult attribute_of_reservation(const RangeTable<uint64_t>::Entry& reservation, CUpointer_attribute attribute,
                                  void* out) {
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
            return say(out, reservation.base);
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
            return say(out, static_cast<size_t>(reservation.size));
        case CU_POINTER_ATTRIBUTE_MAPPED:
            return say(out, static_cast<int>(0));
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult attribute_at(CUdeviceptr pointer, int current_device, CUpointer_attribute attribute, void* out) {
    const Found found = find(pointer);
    if (found.allocation) {
        return attribute_of(*found.allocation, found, pointer, current_device, attribute, out);
    }
    if (found.reservation) return attribute_of_reservation(*found.reservation, attribute, out);
    return CUDA_ERROR_INVALID_VALUE;
}

// What cuPointerGetAttributes says of memory that CUDA does not know, instead of an error.
void say_unknown(CUpointer_attribute attribute, void* out) {
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        case CU_POINTER_ATTRIBUTE_MAPPED:
        case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
            say(out, static_cast<int>(0));
            break;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            say(out, static_cast<int>(CU_DEVICE_INVALID));
            break;
        default:
            say(out, static_cast<uint64_t>(0));
    }
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

DRIVER_API cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr pointer) {
    return in_context([&](const ContextRef& context) -> CUresult {
        if (!data) return CUDA_ERROR_INVALID_VALUE;
        const std::shared_lock<std::shared_mutex> lock(memory().mutex);
        return attribute_at(pointer, device_of(*context), attribute, data);
    });
}

DRIVER_API cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data, CUdeviceptr pointer) {
    return in_context([&](const ContextRef& context) -> CUresult {
        if (!attributes || !data || count == 0) return CUDA_ERROR_INVALID_VALUE;
        const std::shared_lock<std::shared_mutex> lock(memory().mutex);
        for (unsigned i = 0; i < count; ++i) {
            if (!data[i]) return CUDA_ERROR_INVALID_VALUE;
            if (attribute_at(pointer, device_of(*context), attributes[i], data[i]) != CUDA_SUCCESS) {
                say_unknown(attributes[i], data[i]);
            }
        }
        return CUDA_SUCCESS;
    });
}

DRIVER_API cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr pointer) {
    return in_context([&](const ContextRef&) -> CUresult {
        // Accepted and without effect: copies that wait for memory's other copies are not modelled.
        if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) return CUDA_ERROR_INVALID_VALUE;
        const std::shared_lock<std::shared_mutex> lock(memory().mutex);
        return find(pointer).allocation ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    });
}

DRIVER_API cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr pointer) {
    return in_context([&](const ContextRef&) -> CUresult {
        const std::shared_lock<std::shared_mutex> lock(memory().mutex);
        const Allocations::Entry* const entry = find(pointer).allocation;
        if (!entry) return CUDA_ERROR_NOT_FOUND;
        if (base) *base = entry->base;
        if (size) *size = entry->size;
        return CUDA_SUCCESS;
    });
}
