// Handlers of the functions that look at memory which may be evicted, or hand it to others outside this process. As in
// memory_hooks.h; state and decisions are in native/tenant (residence.h, physical.h).
#pragma once

#include "shim/driver.h"
#include "tenant/memory/ipc_import.h"
#include "tenant/memory/movable.h"
#include "tenant/memory/physical.h"

namespace shim {

// The driver has nothing to say of memory that is not there: such a call waits until it is.
template <int index, bool per_thread, class Function>
struct StaysStill;
template <int index, bool per_thread, class... Arguments>
struct StaysStill<index, per_thread, CUresult(Arguments...)> {
    static CUresult call(Arguments... arguments) {
        tenant::Still still;
        return call_real<index>(arguments...);
    }
};

template <int index, bool per_thread, class Function>
struct SetAccess {
    static CUresult call(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access, size_t count) {
        tenant::Still still;
        CUresult result = call_real<index>(address, bytes, access, count);
        if (result == CUDA_SUCCESS) tenant::set_access(address, bytes, access, count);
        return result;
    }
};

template <int index, bool per_thread, class Function>
struct ExportPhysical {
    static CUresult call(void* out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                         unsigned long long flags) {
        tenant::Still still;
        CUresult result = call_real<index>(out, tenant::drivers_handle(handle), type, flags);
        if (result == CUDA_SUCCESS) tenant::pin_handle(handle);
        return result;
    }
};

template <int index, bool per_thread, class Function>
struct PropertiesOfPhysical {
    static CUresult call(CUmemAllocationProp* out, CUmemGenericAllocationHandle handle) {
        tenant::Still still;
        return call_real<index>(out, tenant::drivers_handle(handle));
    }
};

// Other GPUs write to what is bound to a multicast object.
template <int index, bool per_thread, class Function>
struct BindPhysical;
template <int index, bool per_thread, class... Rest>
struct BindPhysical<index, per_thread,
                    CUresult(CUmemGenericAllocationHandle, size_t, CUmemGenericAllocationHandle, Rest...)> {
    static CUresult call(CUmemGenericAllocationHandle multicast, size_t offset, CUmemGenericAllocationHandle handle,
                         Rest... rest) {
        tenant::Still still;
        CUresult result = call_real<index>(multicast, offset, tenant::drivers_handle(handle), rest...);
        if (result == CUDA_SUCCESS) tenant::pin_handle(handle);
        return result;
    }
};
// In its second version the device comes before the offset.
template <int index, bool per_thread, class... Rest>
struct BindPhysical<index, per_thread,
                    CUresult(CUmemGenericAllocationHandle, CUdevice, size_t, CUmemGenericAllocationHandle, Rest...)> {
    static CUresult call(CUmemGenericAllocationHandle multicast, CUdevice device, size_t offset,
                         CUmemGenericAllocationHandle handle, Rest... rest) {
        tenant::Still still;
        CUresult result = call_real<index>(multicast, device, offset, tenant::drivers_handle(handle), rest...);
        if (result == CUDA_SUCCESS) tenant::pin_handle(handle);
        return result;
    }
};
// To a logical endpoint, which has a number.
template <int index, bool per_thread, class... Rest>
struct BindPhysical<index, per_thread,
                    CUresult(cuuint32_t, CUdevice, cuuint64_t, CUmemGenericAllocationHandle, Rest...)> {
    static CUresult call(cuuint32_t endpoint, CUdevice device, cuuint64_t offset, CUmemGenericAllocationHandle handle,
                         Rest... rest) {
        tenant::Still still;
        CUresult result = call_real<index>(endpoint, device, offset, tenant::drivers_handle(handle), rest...);
        if (result == CUDA_SUCCESS) tenant::pin_handle(handle);
        return result;
    }
};

// Likewise. The multicast object's handle and the address are of one type: only their places tell them apart.
template <int index, bool per_thread, class Function>
struct BindAddress;
template <int index, bool per_thread>
struct BindAddress<index, per_thread,
                   CUresult(CUmemGenericAllocationHandle, size_t, CUdeviceptr, size_t, unsigned long long)> {
    static CUresult call(CUmemGenericAllocationHandle multicast, size_t offset, CUdeviceptr address, size_t bytes,
                         unsigned long long flags) {
        tenant::Still still;
        CUresult result = call_real<index>(multicast, offset, address, bytes, flags);
        if (result == CUDA_SUCCESS) tenant::pin_memory(address, bytes);
        return result;
    }
};
template <int index, bool per_thread>
struct BindAddress<index, per_thread,
                   CUresult(CUmemGenericAllocationHandle, CUdevice, size_t, CUdeviceptr, size_t, unsigned long long)> {
    static CUresult call(CUmemGenericAllocationHandle multicast, CUdevice device, size_t offset, CUdeviceptr address,
                         size_t bytes, unsigned long long flags) {
        tenant::Still still;
        CUresult result = call_real<index>(multicast, device, offset, address, bytes, flags);
        if (result == CUDA_SUCCESS) tenant::pin_memory(address, bytes);
        return result;
    }
};
template <int index, bool per_thread>
struct BindAddress<index, per_thread,
                   CUresult(cuuint32_t, CUdevice, cuuint64_t, void*, cuuint64_t, unsigned long long)> {
    static CUresult call(cuuint32_t endpoint, CUdevice device, cuuint64_t offset, void* address, cuuint64_t bytes,
                         unsigned long long flags) {
        tenant::Still still;
        CUresult result = call_real<index>(endpoint, device, offset, address, bytes, flags);
        if (result == CUDA_SUCCESS) tenant::pin_memory(reinterpret_cast<CUdeviceptr>(address), bytes);
        return result;
    }
};

// Somebody else will refer to the memory from now on.
template <int index, bool per_thread, class Function>
struct HandOutRange {
    static CUresult call(void* handle, CUdeviceptr address, size_t bytes, CUmemRangeHandleType type,
                         unsigned long long flags) {
        tenant::Still still;
        CUresult result = call_real<index>(handle, address, bytes, type, flags);
        if (result == CUDA_SUCCESS) tenant::pin_memory(address, bytes);
        return result;
    }
};

template <int index, bool per_thread, class Function>
struct ShareMemory {
    static CUresult call(CUipcMemHandle* handle, CUdeviceptr pointer) {
        tenant::Still still;
        return tenant::export_movable(pointer, handle) ? CUDA_SUCCESS : call_real<index>(handle, pointer);
    }
};

// Not between the two ends of a Still: it waits for another process.
template <int index, bool per_thread, class Function>
struct OpenShared {
    static CUresult call(CUdeviceptr* out, CUipcMemHandle handle, unsigned int flags) {
        CUresult result = CUDA_SUCCESS;
        return tenant::import_allocation(out, handle, flags, &result) ? result : call_real<index>(out, handle, flags);
    }
};

template <int index, bool per_thread, class Function>
struct CloseShared {
    static CUresult call(CUdeviceptr pointer) {
        CUresult result = CUDA_SUCCESS;
        return tenant::close_import(pointer, &result) ? result : call_real<index>(pointer);
    }
};

// Memory that a program takes for memory of cuMemAlloc, its own or another process's.
inline bool allocated_around(CUdeviceptr pointer, tenant::MovableRange* range) {
    return tenant::movable_range(pointer, range) || tenant::imported_range(pointer, range);
}

template <int index, bool per_thread, class Function>
struct AddressRange;
template <int index, bool per_thread, class Pointer, class Size>
struct AddressRange<index, per_thread, CUresult(Pointer*, Size*, Pointer)> {
    static CUresult call(Pointer* base, Size* bytes, Pointer pointer) {
        tenant::Still still;
        tenant::MovableRange range{};
        CUresult result = call_real<index>(base, bytes, pointer);
        if (result != CUDA_SUCCESS || !allocated_around(pointer, &range)) return result;
        if (base) *base = static_cast<Pointer>(range.base);
        if (bytes) *bytes = static_cast<Size>(range.bytes);
        return result;
    }
};

// What the driver would say of the address if it were memory of cuMemAlloc.
inline void answer_as_allocated(CUpointer_attribute attribute, void* out, const tenant::MovableRange& range) {
    if (attribute == CU_POINTER_ATTRIBUTE_CONTEXT) *static_cast<CUcontext*>(out) = range.context;
    if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) *static_cast<CUdeviceptr*>(out) = range.base;
    if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE) *static_cast<size_t*>(out) = range.bytes;
    if (attribute == CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR) *static_cast<CUdeviceptr*>(out) = range.base;
    if (attribute == CU_POINTER_ATTRIBUTE_MAPPING_SIZE) *static_cast<size_t*>(out) = range.bytes;
    // Libraries choose by these how they share it: by the functions above, not by a handle that it does not have.
    if (attribute == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE) *static_cast<int*>(out) = range.exportable;
    if (attribute == CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES) *static_cast<unsigned long long*>(out) = 0;
}

// By such tokens the driver of a network card asks for the pages.
inline void pin_if_handed_out(CUpointer_attribute attribute, CUdeviceptr pointer) {
    if (attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS) tenant::pin_memory(pointer, 1);
}

template <int index, bool per_thread, class Function>
struct PointerAttribute {
    static CUresult call(void* out, CUpointer_attribute attribute, CUdeviceptr pointer) {
        tenant::Still still;
        tenant::MovableRange range{};
        CUresult result = call_real<index>(out, attribute, pointer);
        if (result == CUDA_SUCCESS && allocated_around(pointer, &range)) answer_as_allocated(attribute, out, range);
        if (result == CUDA_SUCCESS) pin_if_handed_out(attribute, pointer);
        return result;
    }
};

template <int index, bool per_thread, class Function>
struct PointerAttributes {
    static CUresult call(unsigned int count, CUpointer_attribute* attributes, void** out, CUdeviceptr pointer) {
        tenant::Still still;
        tenant::MovableRange range{};
        CUresult result = call_real<index>(count, attributes, out, pointer);
        if (result != CUDA_SUCCESS) return result;
        bool is_allocated = allocated_around(pointer, &range);
        for (unsigned int i = 0; i < count; ++i) {
            if (is_allocated) answer_as_allocated(attributes[i], out[i], range);
            pin_if_handed_out(attributes[i], pointer);
        }
        return result;
    }
};

// A program that makes copies of memory synchronous is about to hand it to a network card, which knows it by its pages.
template <int index, bool per_thread, class Function>
struct SetPointerAttribute {
    static CUresult call(const void* value, CUpointer_attribute attribute, CUdeviceptr pointer) {
        tenant::Still still;
        CUresult result = call_real<index>(value, attribute, pointer);
        if (result != CUDA_SUCCESS || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) return result;
        if (*static_cast<const unsigned int*>(value)) tenant::pin_memory(pointer, 1);
        return result;
    }
};

}  // namespace shim
