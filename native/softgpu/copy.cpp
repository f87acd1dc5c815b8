#include "softgpu/copy.h"

#include <cstring>

namespace softgpu {
namespace {

enum class Place { pageable, pinned, device };

// One end of a copy: `base` is its first byte, offset included.
struct Side {
    Place place = Place::device;
    uint64_t base = 0;
};

CUresult place_of(uint64_t base, uint64_t bytes, CUmemorytype type, int device, bool for_writing, Place* out) {
    Memory& all = memory();
    const std::shared_lock<std::shared_mutex> lock(all.mutex);
    const Allocations::Entry* const entry = all.allocations.containing(base);
    if (!entry) {
        if (type == CU_MEMORYTYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
        // The caller's own memory, unless the address is a device's that is no longer, or not yet, memory.
        const bool unified = type == CU_MEMORYTYPE_UNIFIED;
        const bool reserved = all.reservations.containing(base);
        if (unified && (reserved || !has_pages(base, bytes))) return CUDA_ERROR_INVALID_VALUE;
        *out = Place::pageable;
        return CUDA_SUCCESS;
    }
    const bool host = entry->value.on_host();
    if (host && type == CU_MEMORYTYPE_HOST && base + bytes > entry->end()) {
        *out = Place::pageable;  // only its beginning is pinned
        return CUDA_SUCCESS;
    }
    if (!reachable(device, base, bytes, for_writing)) return CUDA_ERROR_INVALID_VALUE;
    *out = host ? Place::pinned : Place::device;
    return CUDA_SUCCESS;
}

CUresult resolve(CUmemorytype type, const void* host, CUdeviceptr pointer, uint64_t offset, uint64_t bytes, int device,
                 bool for_writing, Side* out) {
    if (type == CU_MEMORYTYPE_ARRAY) return CUDA_ERROR_NOT_SUPPORTED;
    if (type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const uint64_t start = type == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(host) : pointer;
    if (start == 0) return CUDA_ERROR_INVALID_VALUE;
    out->base = start + offset;
    return place_of(out->base, bytes, type, device, for_writing, &out->place);
}

model::WorkKind kind_of(const Side& source, const Side& destination) {
    const bool from_device = source.place == Place::device;
    const bool to_device = destination.place == Place::device;
    if (from_device && to_device) return model::WorkKind::copy_on_device;
    return to_device ? model::WorkKind::copy_to_device : model::WorkKind::copy_to_host;
}

// With the lock held. What was allocated at the call may have been freed since.
bool still_there(const Side& side, uint64_t bytes, int device, bool for_writing) {
    return side.place == Place::pageable || reachable(device, side.base, bytes, for_writing);
}

}  // namespace

CUresult plan_copy(const ContextRef& context, const CUDA_MEMCPY3D& wanted, Copy* out) {
    const int device = device_of(*context);
    const uint64_t bytes = wanted.WidthInBytes;
    out->operation.type = CU_GRAPH_NODE_TYPE_MEMCPY;
    out->operation.node_params = std::make_shared<const CUDA_MEMCPY3D>(wanted);
    if (bytes == 0 || wanted.Height == 0 || wanted.Depth == 0) {
        out->moves_nothing = true;
        return CUDA_SUCCESS;
    }
    if (wanted.Height > 1 || wanted.Depth > 1) return CUDA_ERROR_NOT_SUPPORTED;
    if (bytes > INT64_MAX) return CUDA_ERROR_INVALID_VALUE;
    Side source, destination;
    TRY(resolve(wanted.srcMemoryType, wanted.srcHost, wanted.srcDevice, wanted.srcXInBytes, bytes, device, false,
                &source));
    TRY(resolve(wanted.dstMemoryType, wanted.dstHost, wanted.dstDevice, wanted.dstXInBytes, bytes, device, true,
                &destination));

    out->from_pageable = source.place == Place::pageable;
    out->to_pageable = destination.place == Place::pageable;
    out->touches_host = source.place != Place::device || destination.place != Place::device;
    out->snapshot = std::make_shared<Snapshot>();
    out->take_snapshot = [source, bytes, snapshot = out->snapshot] {
        const auto* from = reinterpret_cast<const uint8_t*>(source.base);
        snapshot->bytes.assign(from, from + bytes);
    };
    out->operation.work.kind = kind_of(source, destination);
    out->operation.work.bytes = bytes;
    out->operation.effect = [source, destination, bytes, device, snapshot = out->snapshot](const Timing&) -> int {
        const MemoryHold hold;
        if (!still_there(source, bytes, device, false) || !still_there(destination, bytes, device, true)) {
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        }
        const void* from =
            snapshot->bytes.empty() ? reinterpret_cast<const void*>(source.base) : snapshot->bytes.data();
        std::memmove(reinterpret_cast<void*>(destination.base), from, bytes);
        return 0;
    };
    return CUDA_SUCCESS;
}

CUresult make_copy(const CUDA_MEMCPY3D& wanted, Operation* out) {
    ContextRef context;
    TRY(current_context(&context));
    Copy copy;
    TRY(plan_copy(context, wanted, &copy));
    *out = std::move(copy.operation);
    return CUDA_SUCCESS;
}

}  // namespace softgpu
