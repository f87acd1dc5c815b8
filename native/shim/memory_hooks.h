// Handlers of the functions that allocate and free GPU memory, or report how much there is. As in hooks.cpp: a few
// lines around the driver's function; state and decisions are in native/tenant (ledger.h).
#pragma once

#include "shim/driver.h"
#include "tenant/captures.h"
#include "tenant/green_contexts.h"
#include "tenant/memory/deferred_free.h"
#include "tenant/memory/ledger.h"
#include "tenant/memory/movable.h"
#include "tenant/memory/physical.h"
#include "tenant/memory/pools.h"
#include "tenant/memory/reported_memory.h"
#include "tenant/memory/reserve.h"
#include "tenant/wait_for_all.h"

namespace shim {

using tenant::MemoryKind;

template <MemoryKind kind, int index, class Function>
struct TakeMemory;
template <MemoryKind kind, int index, class Pointer, class Size, class... Rest>
struct TakeMemory<kind, index, CUresult(Pointer*, Size, Rest...)> {
    static CUresult call(Pointer* out, Size bytes, Rest... rest) {
        tenant::Reservation reserved(bytes);
        return reserved.call([&] {
            CUresult result = CUDA_ERROR_NOT_SUPPORTED;
            if constexpr (kind == MemoryKind::pages && std::is_same_v<Pointer, CUdeviceptr>)
                result = tenant::allocate_movable(out, bytes, reserved.place());
            if (result == CUDA_ERROR_NOT_SUPPORTED) result = call_real<index>(out, bytes, rest...);
            if (result == CUDA_SUCCESS) reserved.keep(*out, bytes, kind);
            return result;
        });
    }
};
template <int index, bool per_thread, class Function>
struct Allocate : TakeMemory<MemoryKind::pages, index, Function> {};
template <int index, bool per_thread, class Function>
struct AllocateManaged : TakeMemory<MemoryKind::managed, index, Function> {};

template <int index, bool per_thread, class Function>
struct AllocateRows;
template <int index, bool per_thread, class Pointer, class Size>
struct AllocateRows<index, per_thread, CUresult(Pointer*, Size*, Size, Size, unsigned int)> {
    static CUresult call(Pointer* out, Size* pitch, Size width, Size height, unsigned int element) {
        constexpr uint64_t kUsualPitch = 512;
        uint64_t bytes = 0;
        // More than a number holds is not for us to refuse: the driver has its own words for it.
        if (__builtin_mul_overflow(tenant::in_pages(width, kUsualPitch), uint64_t{height}, &bytes))
            return call_real<index>(out, pitch, width, height, element);
        tenant::Reservation reserved(bytes);
        return reserved.call([&] {
            CUresult result = call_real<index>(out, pitch, width, height, element);
            if (result == CUDA_SUCCESS) reserved.keep(*out, uint64_t{*pitch} * height, MemoryKind::pages);
            return result;
        });
    }
};

template <int index, bool per_thread, class Function>
struct Free;
template <int index, bool per_thread, class Pointer>
struct Free<index, per_thread, CUresult(Pointer)> {
    static CUresult call(Pointer pointer) {
        tenant::WaitForAll for_all;
        tenant::Still still;
        CUresult result = CUDA_SUCCESS;
        tenant::Giving giving(pointer);
        tenant::Freed freed = tenant::free_movable(pointer, &result);
        if (freed == tenant::Freed::not_ours) result = call_real<index>(pointer);
        giving.result(freed == tenant::Freed::later ? CUDA_ERROR_NOT_READY : result);
        return result;
    }
};

template <int index, bool per_thread, class Function>
struct FreeInOrder {
    static CUresult call(CUdeviceptr pointer, CUstream stream) {
        tenant::Still still;
        if (tenant::is_captured(stream, per_thread)) return call_real<index>(pointer, stream);
        if (tenant::is_movable(pointer)) {
            CUresult result = tenant::defer_free_in(pointer, stream, per_thread);
            tenant::free_some_deferred();
            return result;
        }
        tenant::Giving giving(pointer);
        return giving.result(call_real<index>(pointer, stream));
    }
};

// `arguments`: the driver's, after the first.
template <int index, bool per_thread>
struct FromPool {
    template <class... Arguments>
    static CUresult call(CUdeviceptr* out, size_t bytes, CUmemoryPool pool, CUstream stream, Arguments... arguments) {
        bool refused = false;
        auto allocate = [&] {
            tenant::PoolReservation reserved(bytes, pool, stream, per_thread);
            refused = reserved.refused();
            return reserved.call([&] {
                CUresult result = call_real<index>(out, arguments...);
                return reserved.result(result, result == CUDA_SUCCESS ? *out : 0);
            });
        };
        CUresult result = allocate();
        return refused && tenant::wait_for_queued_frees(stream) ? allocate() : result;
    }
};

template <int index, bool per_thread, class Function>
struct AllocateInOrder;
template <int index, bool per_thread, class... Pool>
struct AllocateInOrder<index, per_thread, CUresult(CUdeviceptr*, size_t, CUstream, Pool...)> {
    // In the place of the default pool: usable at once, and so in the stream's order too. The current context is the
    // stream's.
    static CUresult from_movable(CUdeviceptr* out, size_t bytes, CUstream stream) {
        if (out) {
            tenant::Still still;
            if ((*out = tenant::take_again(bytes, stream, per_thread))) return CUDA_SUCCESS;
        }
        tenant::Reservation reserved(bytes);
        return reserved.call([&] {
            CUresult result = tenant::allocate_movable(out, bytes, reserved.place());
            if (result == CUDA_SUCCESS) reserved.keep(*out, bytes, MemoryKind::pages);
            if (result != CUDA_ERROR_NOT_SUPPORTED) return result;
            // Then it comes from the driver's pool, and that is counted.
            if (reserved.place()) tenant::know_pools_of(reserved.place());
            result = call_real<index>(out, bytes, stream);
            tenant::settle_pools();
            return result;
        });
    }
    static CUresult call(CUdeviceptr* out, size_t bytes, CUstream stream) {
        tenant::InContextOf there(stream);
        if (!there.is_known() || !tenant::pool_is_movable(stream, per_thread))
            return FromPool<index, per_thread>::call(out, bytes, nullptr, stream, bytes, stream);
        CUresult result = from_movable(out, bytes, stream);
        bool again = result == CUDA_ERROR_OUT_OF_MEMORY && tenant::may_free_deferred();
        return again && tenant::wait_for_queued_frees(stream) ? from_movable(out, bytes, stream) : result;
    }
};
template <int index, bool per_thread>
struct AllocateInOrder<index, per_thread, CUresult(CUdeviceptr*, size_t, CUmemoryPool, CUstream)> {
    static CUresult call(CUdeviceptr* out, size_t bytes, CUmemoryPool pool, CUstream stream) {
        return FromPool<index, per_thread>::call(out, bytes, pool, stream, bytes, pool, stream);
    }
};

template <int index, bool per_thread, class Function>
struct CreatePool {
    static CUresult call(CUmemoryPool* pool, const CUmemPoolProps* properties) {
        CUresult result = call_real<index>(pool, properties);
        bool on_device = result == CUDA_SUCCESS && properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
        if (result == CUDA_SUCCESS)
            tenant::know_pool(*pool, on_device ? tenant::place_of_device(properties->location.id) : tenant::Place{});
        return result;
    }
};

template <int index, bool per_thread, class Function>
struct DestroyPool {
    static CUresult call(CUmemoryPool pool) {
        tenant::EndingPool ending(pool);
        return ending.result(call_real<index>(pool));
    }
};

// As a pool without a release threshold: what has ended in its stream's order is free memory.
inline void free_what_has_ended() {
    if (!tenant::may_free_deferred()) return;
    tenant::Still still;
    tenant::free_deferred();
}

template <int index, bool per_thread, class Function>
struct Trim;
template <int index, bool per_thread, class... Arguments>
struct Trim<index, per_thread, CUresult(Arguments...)> {
    static CUresult call(Arguments... arguments) {
        free_what_has_ended();
        CUresult result = call_real<index>(arguments...);
        tenant::settle_pools();
        return result;
    }
};

template <int index, bool per_thread, class Function>
struct CreatePhysical {
    static CUresult call(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* properties,
                         unsigned long long flags) {
        bool on_device = properties && properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
        tenant::Reservation reserved(bytes,
                                     on_device ? tenant::place_of_device(properties->location.id) : tenant::Place{});
        return reserved.call([&] {
            CUresult result = call_real<index>(handle, bytes, properties, flags);
            if (result != CUDA_SUCCESS) return result;
            *handle = tenant::keep_physical(reserved, *handle, bytes, *properties);
            return result;
        });
    }
};

template <int index, bool per_thread, class Function>
struct ReleasePhysical {
    static CUresult call(CUmemGenericAllocationHandle handle) {
        tenant::Still still;
        tenant::UnderWay under_way;
        // The driver may give the handle to another thread's memory at once: that is entered after this one is gone.
        tenant::ResidenceLocked locked;
        CUresult result = tenant::is_number(handle) ? CUDA_SUCCESS : call_real<index>(handle);
        if (result == CUDA_SUCCESS) tenant::release_physical(handle);
        return result;
    }
};

template <int index, bool per_thread, class Function>
struct Map {
    static CUresult call(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                         unsigned long long flags) {
        tenant::Still still;
        CUresult result = call_real<index>(address, bytes, offset, tenant::drivers_handle(handle), flags);
        if (result == CUDA_SUCCESS) tenant::map_physical(address, bytes, handle);
        return result;
    }
};

template <int index, bool per_thread, class Function>
struct Unmap {
    static CUresult call(CUdeviceptr address, size_t bytes) {
        tenant::Still still;
        tenant::UnderWay under_way;
        CUresult result = call_real<index>(address, bytes);
        if (result == CUDA_SUCCESS) tenant::unmap_physical(address, bytes);
        return result;
    }
};

template <int index, bool per_thread, class Function>
struct RetainPhysical {
    static CUresult call(CUmemGenericAllocationHandle* handle, void* address) {
        tenant::Still still;
        auto pointer = reinterpret_cast<uint64_t>(address);
        tenant::MovableRange range{};
        // What cuMemAlloc has made has no handle.
        if (tenant::movable_range(pointer, &range)) return CUDA_ERROR_INVALID_VALUE;
        if (handle && tenant::retain_number(pointer, handle)) return CUDA_SUCCESS;
        CUresult result = call_real<index>(handle, address);
        if (result == CUDA_SUCCESS) tenant::retain_physical(pointer, *handle);
        return result;
    }
};

// Rows are stored in tiles: lines of 64 bytes, eight of them high.
template <class Descriptor>
uint64_t depth_of(const Descriptor&) {
    return 1;
}
inline uint64_t depth_of(const CUDA_ARRAY3D_DESCRIPTOR_v2& array) { return array.Depth ? array.Depth : 1; }
inline unsigned int flags_of(const CUDA_ARRAY3D_DESCRIPTOR_v2& array) { return array.Flags; }
template <class Descriptor>
unsigned int flags_of(const Descriptor&) {
    return 0;
}
uint64_t bytes_of_element(CUarray_format format);
template <class Descriptor>
uint64_t array_bytes(const Descriptor* array, unsigned int levels) {
    // Such an array gets its memory by being mapped to some.
    if (!array || flags_of(*array) & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) return 0;
    uint64_t width = array->Width, height = array->Height ? array->Height : 1, depth = depth_of(*array), bytes = 0;
    for (unsigned int level = 0; level < (levels ? levels : 1); ++level) {
        uint64_t row = tenant::in_pages(width * bytes_of_element(array->Format) * array->NumChannels, 64);
        uint64_t plane = 0, box = 0;
        if (__builtin_mul_overflow(row, tenant::in_pages(height, 8), &plane) ||
            __builtin_mul_overflow(plane, depth, &box) || __builtin_add_overflow(bytes, box, &bytes))
            return UINT64_MAX / 2;
        // The driver takes no more levels than there are, however many it is asked for.
        if (width <= 1 && height <= 1 && (depth <= 1 || flags_of(*array) & CUDA_ARRAY3D_LAYERED)) break;
        width = width > 1 ? width / 2 : 1;
        height = height > 1 ? height / 2 : 1;
        if (!(flags_of(*array) & CUDA_ARRAY3D_LAYERED)) depth = depth > 1 ? depth / 2 : 1;
    }
    return bytes;
}

template <int index, bool per_thread, class Function>
struct CreateArray;
template <int index, bool per_thread, class Array, class Descriptor, class... Levels>
struct CreateArray<index, per_thread, CUresult(Array*, const Descriptor*, Levels...)> {
    static CUresult call(Array* out, const Descriptor* wanted, Levels... levels) {
        uint64_t bytes = array_bytes(wanted, (levels + ... + 0u));
        tenant::Reservation reserved(bytes);
        return reserved.call([&] {
            CUresult result = call_real<index>(out, wanted, levels...);
            if (result == CUDA_SUCCESS) reserved.keep(reinterpret_cast<uint64_t>(*out), bytes, MemoryKind::array);
            return result;
        });
    }
};

template <int index, bool per_thread, class Function>
struct ImportMemory {
    static CUresult call(CUexternalMemory* out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* wanted) {
        uint64_t bytes = wanted ? wanted->size : 0;
        tenant::Reservation reserved(bytes);
        if (reserved.refused()) return CUDA_ERROR_OUT_OF_MEMORY;
        CUresult result = call_real<index>(out, wanted);
        if (result == CUDA_SUCCESS) reserved.keep(reinterpret_cast<uint64_t>(*out), bytes, MemoryKind::external);
        return result;
    }
};

template <int index, bool per_thread, class Function>
struct DestroyHandle;
template <int index, bool per_thread, class Handle>
struct DestroyHandle<index, per_thread, CUresult(Handle)> {
    static CUresult call(Handle handle) {
        tenant::Giving giving(reinterpret_cast<uint64_t>(handle));
        return giving.result(call_real<index>(handle));
    }
};

template <int index, bool per_thread, class Function>
struct MemoryInfo;
template <int index, bool per_thread, class Size>
struct MemoryInfo<index, per_thread, CUresult(Size*, Size*)> {
    static CUresult call(Size* free, Size* total) {
        // While the program's memory is evicted, more is free than it can have.
        tenant::Still still;
        free_what_has_ended();
        CUresult result = call_real<index>(free, total);
        if (result != CUDA_SUCCESS) return result;
        tenant::ReportedMemory answer{*total, *free, 0};
        if (!tenant::limit_report_here(&answer)) return result;
        *free = static_cast<Size>(answer.free);
        *total = static_cast<Size>(answer.total);
        return result;
    }
};

template <int index, bool per_thread, class Function>
struct TotalMemory;
template <int index, bool per_thread, class Size>
struct TotalMemory<index, per_thread, CUresult(Size*, CUdevice)> {
    static CUresult call(Size* total, CUdevice device) {
        CUresult result = call_real<index>(total, device);
        if (result != CUDA_SUCCESS) return result;
        tenant::ReportedMemory answer{*total, *total, 0};
        if (tenant::limit_report(device, &answer)) *total = static_cast<Size>(answer.total);
        return result;
    }
};

}  // namespace shim
