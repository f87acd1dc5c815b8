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

CUresult attribute_of(const Allocations::Entry& entry, const Found& found, CUpointer_attribute attribute, void* out) {
    const Allocation& allocation = entry.value;
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_CONTEXT:
            return say(out, allocation.context);
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            return say(out, static_cast<unsigned>(allocation.on_host() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE));
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
            return say(out, static_cast<int>(allocation.kind == MemoryKind::device));
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
            return say(out, static_cast<int>(allocation.kind == MemoryKind::managed));
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            return say(out, allocation.device);
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
            return say(out, found.reservation ? found.reservation->base : entry.base);
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
            return say(out, static_cast<size_t>(found.reservation ? found.reservation->size : entry.size));
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
            return say(out, handle_types(allocation));
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
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult attribute_at(CUdeviceptr pointer, CUpointer_attribute attribute, void* out) {
    const Found found = find(pointer);
    if (found.allocation) {
        return attribute_of(*found.allocation, found, attribute, out);
    }
    if (found.reservation) return attribute_of_reservation(*found.reservation, attribute, out);
    return CUDA_ERROR_INVALID_VALUE;
}

// What cuPointerGetAttributes says of memory that CUDA does not know, instead of an error.
void say_unknown(CUpointer_attribute attribute, void* out) {
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
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
    return in_context([&](const ContextRef&) -> CUresult {
        if (!data) return CUDA_ERROR_INVALID_VALUE;
        const std::shared_lock<std::shared_mutex> lock(memory().mutex);
        return attribute_at(pointer, attribute, data);
    });
}

DRIVER_API cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data, CUdeviceptr pointer) {
    return in_context([&](const ContextRef&) -> CUresult {
        if (!attributes || !data || count == 0) return CUDA_ERROR_INVALID_VALUE;
        const std::shared_lock<std::shared_mutex> lock(memory().mutex);
        for (unsigned i = 0; i < count; ++i) {
            if (!data[i]) return CUDA_ERROR_INVALID_VALUE;
            if (attribute_at(pointer, attributes[i], data[i]) != CUDA_SUCCESS) {
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
