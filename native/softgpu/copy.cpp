#include "softgpu/copy.h"

#include <cstring>

namespace softgpu {
namespace {

constexpr uint64_t max_pitch = 0x7fffffff;

enum class Place { pageable, pinned, device };

// One end of a copy: `base` is its first byte, offsets included.
struct Side {
    Place place = Place::device;
    uint64_t base = 0;
    uint64_t pitch = 0;            // from row to row
    uint64_t slice = 0;            // from slice to slice
    std::shared_ptr<Array> array;  // kept alive while the copy waits
};

struct Extent {
    uint64_t width, height, depth;
    uint64_t bytes() const { return width * height * depth; }
    uint64_t span(const Side& side) const { return (depth - 1) * side.slice + (height - 1) * side.pitch + width; }
};

// The parameters of one end, as CUDA_MEMCPY3D names them twice.
struct Wanted {
    CUmemorytype type;
    uint64_t x, y, z;
    uint64_t host, device;
    CUarray array;
    uint64_t pitch, height;
};

CUresult in_array(const Wanted& wanted, const Extent& extent, Side* out) {
    const std::shared_ptr<Array> array = array_from(wanted.array);
    if (!array) return CUDA_ERROR_INVALID_HANDLE;
    if (wanted.x + extent.width > array->row_bytes || wanted.y + extent.height > array->rows ||
        wanted.z + extent.depth > array->slices) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    out->array = array;
    out->pitch = array->row_bytes;
    out->slice = array->row_bytes * array->rows;
    out->base = array->base + wanted.z * out->slice + wanted.y * out->pitch + wanted.x;
    return CUDA_SUCCESS;
}

CUresult place_of(const Side& side, const Extent& extent, CUmemorytype type, int device, bool for_writing, Place* out) {
    Memory& all = memory();
    const std::shared_lock<std::shared_mutex> lock(all.mutex);
    const Allocations::Entry* const entry = all.allocations.containing(side.base);
    if (!entry) {
        if (type == CU_MEMORYTYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
        // The caller's own memory, unless the address is a device's that is no longer, or not yet, memory.
        const bool unified = type == CU_MEMORYTYPE_UNIFIED;
        const bool reserved = all.reservations.containing(side.base);
        if (unified && (reserved || !has_pages(side.base, extent.span(side)))) return CUDA_ERROR_INVALID_VALUE;
        *out = Place::pageable;
        return CUDA_SUCCESS;
    }
    const bool host = entry->value.on_host();
    if (host && type == CU_MEMORYTYPE_HOST && side.base + extent.span(side) > entry->end()) {
        *out = Place::pageable;  // only its beginning is pinned
        return CUDA_SUCCESS;
    }
    if (!reachable(device, side.base, extent.span(side), for_writing)) return CUDA_ERROR_INVALID_VALUE;
    *out = host ? Place::pinned : Place::device;
    return CUDA_SUCCESS;
}

CUresult in_memory(const Wanted& wanted, const Extent& extent, int device, bool for_writing, Side* out) {
    const uint64_t start = wanted.type == CU_MEMORYTYPE_HOST ? wanted.host : wanted.device;
    if (start == 0) return CUDA_ERROR_INVALID_VALUE;
    if (extent.height > 1 || extent.depth > 1) {
        if (wanted.pitch < wanted.x + extent.width || wanted.pitch > max_pitch) return CUDA_ERROR_INVALID_VALUE;
    }
    if (extent.depth > 1 && wanted.height < wanted.y + extent.height) return CUDA_ERROR_INVALID_VALUE;
    out->pitch = wanted.pitch;
    out->slice = wanted.pitch * wanted.height;
    out->base = start + wanted.z * out->slice + wanted.y * out->pitch + wanted.x;
    return place_of(*out, extent, wanted.type, device, for_writing, &out->place);
}

CUresult resolve(const Wanted& wanted, const Extent& extent, int device, bool for_writing, Side* out) {
    switch (wanted.type) {
        case CU_MEMORYTYPE_ARRAY:
            return in_array(wanted, extent, out);
        case CU_MEMORYTYPE_HOST:
        case CU_MEMORYTYPE_DEVICE:
        case CU_MEMORYTYPE_UNIFIED:
            return in_memory(wanted, extent, device, for_writing, out);
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

model::WorkKind kind_of(const Side& source, const Side& destination) {
    const bool from_device = source.place == Place::device;
    const bool to_device = destination.place == Place::device;
    if (from_device && to_device) return model::WorkKind::copy_on_device;
    return to_device ? model::WorkKind::copy_to_device : model::WorkKind::copy_to_host;
}

void move_rows(const Side& destination, const Side& source, const Extent& extent) {
    for (uint64_t z = 0; z < extent.depth; ++z) {
        for (uint64_t y = 0; y < extent.height; ++y) {
            std::memmove(reinterpret_cast<void*>(destination.base + z * destination.slice + y * destination.pitch),
                         reinterpret_cast<const void*>(source.base + z * source.slice + y * source.pitch),
                         extent.width);
        }
    }
}

Side packed(const std::vector<uint8_t>& bytes, const Extent& extent) {
    Side side;
    side.base = reinterpret_cast<uint64_t>(bytes.data());
    side.pitch = extent.width;
    side.slice = extent.width * extent.height;
    return side;
}

// With the lock held. What was allocated at the call may have been freed since.
bool still_there(const Side& side, const Extent& extent, int device, bool for_writing) {
    if (side.place == Place::pageable || side.array) return true;
    return reachable(device, side.base, extent.span(side), for_writing);
}

}  // namespace

CUresult plan_copy(const ContextRef& context, const CUDA_MEMCPY3D& wanted, Copy* out) {
    const int device = device_of(*context);
    const Extent extent{wanted.WidthInBytes, wanted.Height, wanted.Depth};
    out->operation.type = CU_GRAPH_NODE_TYPE_MEMCPY;
    out->operation.node_params = std::make_shared<const CUDA_MEMCPY3D>(wanted);
    if (extent.width == 0 || extent.height == 0 || extent.depth == 0) {
        out->moves_nothing = true;
        return CUDA_SUCCESS;
    }
    uint64_t bytes;
    if (__builtin_mul_overflow(extent.width, extent.height, &bytes) ||
        __builtin_mul_overflow(bytes, extent.depth, &bytes) || bytes > INT64_MAX) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    Side source, destination;
    TRY(resolve(
        {wanted.srcMemoryType, wanted.srcXInBytes, wanted.srcY, wanted.srcZ, reinterpret_cast<uint64_t>(wanted.srcHost),
         wanted.srcDevice, wanted.srcArray, wanted.srcPitch, wanted.srcHeight},
        extent, device, false, &source));
    TRY(resolve(
        {wanted.dstMemoryType, wanted.dstXInBytes, wanted.dstY, wanted.dstZ, reinterpret_cast<uint64_t>(wanted.dstHost),
         wanted.dstDevice, wanted.dstArray, wanted.dstPitch, wanted.dstHeight},
        extent, device, true, &destination));

    out->from_pageable = source.place == Place::pageable;
    out->to_pageable = destination.place == Place::pageable;
    out->touches_host = source.place != Place::device || destination.place != Place::device;
    out->snapshot = std::make_shared<Snapshot>();
    out->take_snapshot = [source, extent, snapshot = out->snapshot] {
        snapshot->bytes.resize(extent.bytes());
        move_rows(packed(snapshot->bytes, extent), source, extent);
    };
    out->operation.work.kind = kind_of(source, destination);
    out->operation.work.bytes = bytes;
    out->operation.effect = [source, destination, extent, device, snapshot = out->snapshot](const Timing&) -> int {
        const MemoryHold hold;
        if (!still_there(source, extent, device, false) || !still_there(destination, extent, device, true)) {
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        }
        move_rows(destination, snapshot->bytes.empty() ? source : packed(snapshot->bytes, extent), extent);
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
