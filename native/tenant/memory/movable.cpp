#include "tenant/memory/movable.h"

#include <new>

#include "tenant/captures.h"
#include "tenant/context.h"
#include "tenant/device_attribute.h"
#include "tenant/fork.h"
#include "tenant/green_contexts.h"
#include "tenant/membership.h"
#include "tenant/memory/deferred_free.h"
#include "tenant/memory/ipc_export.h"
#include "tenant/memory/mover.h"
#include "tenant/memory/used_contexts.h"

namespace tenant {

namespace {

DeviceAttribute can_be_exported(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
DeviceAttribute can_be_reached_by_network_cards(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);

void forget_in_child() {
    can_be_exported.forget_in_child();
    can_be_reached_by_network_cards.forget_in_child();
}
LISTEN(AtFork, ForkStep::movable, forget_in_child)

// While a capture is open, some threads may neither allocate nor free: the driver then says so by itself.
bool captures_allow_it() {
    if (!capture_is_open()) return true;
    Membership* membership = Membership::current_if_joined();
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (!membership || driver.cuThreadExchangeStreamCaptureMode(&mode) != CUDA_SUCCESS) return false;
    CUstreamCaptureMode own = mode;
    driver.cuThreadExchangeStreamCaptureMode(&mode);
    MembershipLocked locked(*membership);
    return !captures.refuse(own);
}

// As cuMemAlloc has it: the device itself, and its peers once the program enables them.
void let_everybody_in(Chunk& chunk, CUdevice device) {
    auto add = [&](CUdevice who) {
        if (chunk.access_count < Chunk::kMostAccess)
            chunk.access[chunk.access_count++] = {{CU_MEM_LOCATION_TYPE_DEVICE, {who}},
                                                  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    };
    add(device);
    int devices = 0, can = 0;
    if (driver.cuDeviceGetCount(&devices) != CUDA_SUCCESS) return;
    for (CUdevice peer = 0; peer < devices; ++peer)
        if (peer != device && driver.cuDeviceCanAccessPeer(&can, peer, device) == CUDA_SUCCESS && can) add(peer);
}

// What cuMemAlloc has and memory of this kind has to ask for: that other processes and network cards get at it.
CUresult create(Chunk& chunk, CUdevice device) {
    CUmemAllocationProp plain{};
    plain.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    plain.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
    chunk.properties = plain;
    if (can_be_exported.of(device)) chunk.properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (can_be_reached_by_network_cards.of(device)) chunk.properties.allocFlags.gpuDirectRDMACapable = 1;
    CUresult result = driver.cuMemCreate(&chunk.handle, chunk.bytes, &chunk.properties, 0);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY) {
        chunk.properties = plain;
        result = driver.cuMemCreate(&chunk.handle, chunk.bytes, &chunk.properties, 0);
    }
    if (result != CUDA_SUCCESS) chunk.handle = 0;
    return result;
}

CUresult make_chunk(Chunk** out, uint64_t bytes, const Place& place) {
    auto* chunk = new (std::nothrow) Chunk;
    if (!chunk) return CUDA_ERROR_NOT_SUPPORTED;
    chunk->bytes = bytes;
    chunk->gpu = place.gpu;
    chunk->context = owner_of(current_context());
    used_contexts::note(chunk->context);
    let_everybody_in(*chunk, place.device);
    show_movable(*chunk, true);
    CUresult result = create(*chunk, place.device);
    if (result == CUDA_SUCCESS) result = driver.cuMemAddressReserve(&chunk->address, bytes, kMemoryPage, 0, 0);
    if (result == CUDA_SUCCESS) {
        result = driver.cuMemMap(chunk->address, bytes, 0, chunk->handle, 0);
        chunk->mapped = result == CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS) {
        result = driver.cuMemSetAccess(chunk->address, bytes, chunk->access, chunk->access_count);
        if (result != CUDA_SUCCESS && chunk->access_count > 1) {
            chunk->access_count = 1;
            result = driver.cuMemSetAccess(chunk->address, bytes, chunk->access, 1);
        }
    }
    if (result == CUDA_SUCCESS) {
        *out = chunk;
        return CUDA_SUCCESS;
    }
    discard_chunk(chunk);
    return result == CUDA_ERROR_OUT_OF_MEMORY ? result : CUDA_ERROR_NOT_SUPPORTED;
}

CUdeviceptr take_from_slabs(uint64_t bytes, const Place& place, CUcontext context) {
    for (uint32_t i = 0; i < residence.chunks.count(); ++i) {
        Chunk& chunk = residence.chunks[i];
        if (chunk.slab && chunk.context == context && chunk.gpu == place.gpu)
            if (CUdeviceptr pointer = chunk.slab->take(bytes)) return pointer;
    }
    return 0;
}

CUresult allocate_small(CUdeviceptr* out, uint64_t bytes, const Place& place) {
    CUcontext context = owner_of(current_context());
    if ((*out = take_from_slabs(bytes, place, context))) return CUDA_SUCCESS;
    Chunk* chunk = nullptr;
    CUresult result = make_chunk(&chunk, Slab::kBytes, place);
    if (result != CUDA_SUCCESS) return result;
    chunk->origin = Chunk::Origin::slab;
    chunk->slab = new (std::nothrow) Slab(chunk->address);
    if (!chunk->slab) {
        discard_chunk(chunk);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    *out = chunk->slab->take(bytes);
    return enter_chunk(chunk);
}

CUresult allocate_whole(CUdeviceptr* out, uint64_t bytes, const Place& place) {
    if (bytes > UINT64_MAX / 2) return CUDA_ERROR_NOT_SUPPORTED;
    Chunk* chunk = nullptr;
    CUresult result = make_chunk(&chunk, in_pages(bytes), place);
    if (result != CUDA_SUCCESS) return result;
    chunk->asked = bytes;
    *out = chunk->address;
    return enter_chunk(chunk);
}

}  // namespace

CUresult allocate_movable(CUdeviceptr* out, uint64_t bytes, const Place& place) {
    if (!Still::memory_moves.load(std::memory_order_relaxed)) return CUDA_ERROR_NOT_SUPPORTED;
    if (!out || bytes == 0 || !place || !captures_allow_it()) return CUDA_ERROR_NOT_SUPPORTED;
    if (residence.only_exportable && !can_be_exported.of(place.device)) return CUDA_ERROR_NOT_SUPPORTED;
    start_moving(*place.membership);
    free_some_deferred();
    ResidenceLocked locked;
    return bytes <= Slab::kMostBytes ? allocate_small(out, bytes, place) : allocate_whole(out, bytes, place);
}

Freed free_movable(CUdeviceptr pointer, CUresult* result) {
    MovableRange range{};
    if (!pointer || !movable_range(pointer, &range) || range.base != pointer || !current_context())
        return Freed::not_ours;
    // It was freed before: the driver knows it no more.
    if (is_deferred(pointer)) {
        *result = CUDA_ERROR_INVALID_VALUE;
        return Freed::now;
    }
    *result = CUDA_SUCCESS;
    // First: it may wait for the mover, and a capture may begin meanwhile.
    uint64_t so_far = deferred_so_far();
    if (capture_is_open()) {
        if (!captures_allow_it()) return Freed::not_ours;
        // Waiting for the GPU would end the capture.
        if (defer_free(pointer)) return Freed::later;
        *result = CUDA_ERROR_OUT_OF_MEMORY;
        return Freed::now;
    }
    {
        // As the driver: what is queued may still use it.
        InContext there(range.context);
        *result = driver.cuCtxSynchronize();
        if (*result != CUDA_SUCCESS) return Freed::now;
        free_deferred_until(so_far, range.context);
    }
    // The context has been waited for: the next query of free memory includes all of it.
    free_deferred();
    return give_back_movable(pointer) ? Freed::now : Freed::not_ours;
}

bool export_movable(CUdeviceptr pointer, CUipcMemHandle* out) {
    if (!out || !Still::memory_moves.load(std::memory_order_relaxed)) return false;
    ResidenceLocked locked;
    MovableRange range{};
    Chunk* chunk = residence.chunks.containing(pointer);
    if (!chunk || !movable_range(pointer, &range) || !export_chunk(*chunk)) return false;
    // Pinned also where the handle cannot be made: it is exported.
    set_pinned(*chunk, true);
    return export_allocation(*chunk, range.base, range.bytes, out);
}

}  // namespace tenant
