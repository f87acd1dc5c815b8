// The entry points that copy: all of them describe a box and hand it on.
#include "softgpu/copy.h"

namespace softgpu {
namespace {

// One end of a copy of consecutive bytes.
struct End {
    CUmemorytype type;
    const void* host;
    CUdeviceptr device;
    CUarray array;
    size_t offset;
};

End host(const void* pointer) { return {CU_MEMORYTYPE_HOST, pointer, 0, nullptr, 0}; }
End device(CUdeviceptr pointer) { return {CU_MEMORYTYPE_DEVICE, nullptr, pointer, nullptr, 0}; }
End either(CUdeviceptr pointer) { return {CU_MEMORYTYPE_UNIFIED, nullptr, pointer, nullptr, 0}; }
End array(CUarray handle, size_t offset) { return {CU_MEMORYTYPE_ARRAY, nullptr, 0, handle, offset}; }

CUDA_MEMCPY3D line(const End& to, const End& from, size_t bytes) {
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = from.type;
    copy.srcHost = from.host;
    copy.srcDevice = from.device;
    copy.srcArray = from.array;
    copy.srcXInBytes = from.offset;
    copy.dstMemoryType = to.type;
    copy.dstHost = const_cast<void*>(to.host);
    copy.dstDevice = to.device;
    copy.dstArray = to.array;
    copy.dstXInBytes = to.offset;
    copy.WidthInBytes = bytes;
    copy.Height = copy.Depth = 1;
    return copy;
}

CUDA_MEMCPY3D box(const CUDA_MEMCPY2D& flat) {
    CUDA_MEMCPY3D copy{};
    copy.srcXInBytes = flat.srcXInBytes;
    copy.srcY = flat.srcY;
    copy.srcMemoryType = flat.srcMemoryType;
    copy.srcHost = flat.srcHost;
    copy.srcDevice = flat.srcDevice;
    copy.srcArray = flat.srcArray;
    copy.srcPitch = flat.srcPitch;
    copy.dstXInBytes = flat.dstXInBytes;
    copy.dstY = flat.dstY;
    copy.dstMemoryType = flat.dstMemoryType;
    copy.dstHost = flat.dstHost;
    copy.dstDevice = flat.dstDevice;
    copy.dstArray = flat.dstArray;
    copy.dstPitch = flat.dstPitch;
    copy.WidthInBytes = flat.WidthInBytes;
    copy.Height = flat.Height;
    copy.Depth = 1;
    return copy;
}

CUDA_MEMCPY3D box(const CUDA_MEMCPY3D& copy) { return copy; }

// All devices of a process share one address space, so that whose memory it is follows from the address.
CUDA_MEMCPY3D box(const CUDA_MEMCPY3D_PEER& peer) {
    CUDA_MEMCPY3D copy{};
    static_assert(sizeof copy == sizeof peer, "the contexts stand where the reserved fields are");
    copy = reinterpret_cast<const CUDA_MEMCPY3D&>(peer);
    copy.reserved0 = nullptr;
    copy.reserved1 = nullptr;
    return copy;
}

CUresult copy_now(const CUDA_MEMCPY3D& wanted, DefaultStream which) {
    ContextRef context;
    TRY(current_context(&context));
    Copy copy;
    TRY(plan_copy(context, wanted, &copy));
    if (copy.moves_nothing) return CUDA_SUCCESS;
    // Between places of the device, even this form does not wait for the end.
    return copy.touches_host ? enqueue_and_wait(nullptr, which, std::move(copy.operation))
                             : enqueue(nullptr, which, std::move(copy.operation));
}

CUresult copy_in_order(const CUDA_MEMCPY3D& wanted, CUstream stream, DefaultStream which) {
    ContextRef context;
    TRY(current_context(&context));
    Copy copy;
    TRY(plan_copy(context, wanted, &copy));
    if (copy.from_pageable) copy.take_snapshot();
    OpId done = 0;
    TRY(enqueue(stream, which, std::move(copy.operation), &done));
    if (done == 0) {
        // Captured: a graph reads its sources anew at each launch.
        if (copy.snapshot) copy.snapshot->bytes.clear();
        return CUDA_SUCCESS;
    }
    if (!copy.to_pageable) return CUDA_SUCCESS;
    // The driver stages such a copy, and returns when the caller's memory has been written.
    Engine& engine = engine_of(*context);
    engine.wait(done);
    return static_cast<CUresult>(engine.error());
}

template <typename Description>
CUresult box_now(const Description* description, DefaultStream which) {
    return description ? copy_now(box(*description), which) : CUDA_ERROR_INVALID_VALUE;
}

template <typename Description>
CUresult box_in_order(const Description* description, CUstream stream, DefaultStream which) {
    return description ? copy_in_order(box(*description), stream, which) : CUDA_ERROR_INVALID_VALUE;
}

CUresult check_contexts(CUcontext one, CUcontext other) {
    return context_from(one) && context_from(other) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult peer_now(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
                  DefaultStream which) {
    TRY(check_contexts(to_context, from_context));
    return copy_now(line(device(to), device(from), bytes), which);
}

CUresult peer_in_order(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
                       CUstream stream, DefaultStream which) {
    TRY(check_contexts(to_context, from_context));
    return copy_in_order(line(device(to), device(from), bytes), stream, which);
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

PLAIN_AND_PTDS(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t bytes),
               copy_now(line(either(to), either(from), bytes), which))
PLAIN_AND_PTDS(cuMemcpyHtoD_v2, (CUdeviceptr to, const void* from, size_t bytes),
               copy_now(line(device(to), host(from), bytes), which))
PLAIN_AND_PTDS(cuMemcpyDtoH_v2, (void* to, CUdeviceptr from, size_t bytes),
               copy_now(line(host(to), device(from), bytes), which))
PLAIN_AND_PTDS(cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes),
               copy_now(line(device(to), device(from), bytes), which))
PLAIN_AND_PTDS(cuMemcpyDtoA_v2, (CUarray to, size_t offset, CUdeviceptr from, size_t bytes),
               copy_now(line(array(to, offset), device(from), bytes), which))
PLAIN_AND_PTDS(cuMemcpyAtoD_v2, (CUdeviceptr to, CUarray from, size_t offset, size_t bytes),
               copy_now(line(device(to), array(from, offset), bytes), which))
PLAIN_AND_PTDS(cuMemcpyHtoA_v2, (CUarray to, size_t offset, const void* from, size_t bytes),
               copy_now(line(array(to, offset), host(from), bytes), which))
PLAIN_AND_PTDS(cuMemcpyAtoH_v2, (void* to, CUarray from, size_t offset, size_t bytes),
               copy_now(line(host(to), array(from, offset), bytes), which))
PLAIN_AND_PTDS(cuMemcpyAtoA_v2, (CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t bytes),
               copy_now(line(array(to, to_offset), array(from, from_offset), bytes), which))
PLAIN_AND_PTDS(cuMemcpyPeer,
               (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes),
               peer_now(to, to_context, from, from_context, bytes, which))
PLAIN_AND_PTDS(cuMemcpy2D_v2, (const CUDA_MEMCPY2D* copy), box_now(copy, which))
PLAIN_AND_PTDS(cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D* copy), box_now(copy, which))
PLAIN_AND_PTDS(cuMemcpy3D_v2, (const CUDA_MEMCPY3D* copy), box_now(copy, which))
PLAIN_AND_PTDS(cuMemcpy3DPeer, (const CUDA_MEMCPY3D_PEER* copy), box_now(copy, which))

PLAIN_AND_PTSZ(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
               copy_in_order(line(either(to), either(from), bytes), stream, which))
PLAIN_AND_PTSZ(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void* from, size_t bytes, CUstream stream),
               copy_in_order(line(device(to), host(from), bytes), stream, which))
PLAIN_AND_PTSZ(cuMemcpyDtoHAsync_v2, (void* to, CUdeviceptr from, size_t bytes, CUstream stream),
               copy_in_order(line(host(to), device(from), bytes), stream, which))
PLAIN_AND_PTSZ(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
               copy_in_order(line(device(to), device(from), bytes), stream, which))
PLAIN_AND_PTSZ(cuMemcpyHtoAAsync_v2, (CUarray to, size_t offset, const void* from, size_t bytes, CUstream stream),
               copy_in_order(line(array(to, offset), host(from), bytes), stream, which))
PLAIN_AND_PTSZ(cuMemcpyAtoHAsync_v2, (void* to, CUarray from, size_t offset, size_t bytes, CUstream stream),
               copy_in_order(line(host(to), array(from, offset), bytes), stream, which))
PLAIN_AND_PTSZ(cuMemcpyPeerAsync,
               (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
                CUstream stream),
               peer_in_order(to, to_context, from, from_context, bytes, stream, which))
PLAIN_AND_PTSZ(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D* copy, CUstream stream), box_in_order(copy, stream, which))
PLAIN_AND_PTSZ(cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D* copy, CUstream stream), box_in_order(copy, stream, which))
PLAIN_AND_PTSZ(cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D_PEER* copy, CUstream stream),
               box_in_order(copy, stream, which))

#if CUDA_VERSION >= 13000
namespace softgpu {
namespace {

CUresult copy_batch(const CUdeviceptr* to, const CUdeviceptr* from, const size_t* bytes, size_t count,
                    const CUmemcpyAttributes* attributes, const size_t* attribute_starts, size_t attribute_count,
                    CUstream stream, DefaultStream which) {
    if (!to || !from || !bytes || count == 0) return CUDA_ERROR_INVALID_VALUE;
    if (!attributes || !attribute_starts || attribute_count == 0 || attribute_count > count ||
        attribute_starts[0] != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    // Not in the legacy stream, as the driver has it.
    if (stream == CU_STREAM_LEGACY || (!stream && which == DefaultStream::legacy)) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; ++i) {
        TRY(copy_in_order(line(either(to[i]), either(from[i]), bytes[i]), stream, which));
    }
    return CUDA_SUCCESS;
}

}  // namespace
}  // namespace softgpu

PLAIN_AND_PTSZ(cuMemcpyBatchAsync_v2,
               (CUdeviceptr * to, CUdeviceptr* from, size_t* bytes, size_t count, CUmemcpyAttributes* attributes,
                size_t* attribute_starts, size_t attribute_count, CUstream stream),
               copy_batch(to, from, bytes, count, attributes, attribute_starts, attribute_count, stream, which))
#endif
