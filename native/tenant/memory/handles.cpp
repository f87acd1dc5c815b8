#include "tenant/memory/handles.h"

#include <atomic>
#include <new>

#include "tenant/context.h"
#include "tenant/fork.h"
#include "tenant/green_contexts.h"
#include "tenant/memory/mover.h"
#include "tenant/memory/residence.h"
#include "tenant/memory/table.h"
#include "tenant/memory/used_contexts.h"

namespace tenant {

namespace {

// No address that a driver's handle could be.
constexpr uint64_t kFirstNumber = uint64_t{0xc07e} << 48;

struct Physical {
    CUmemGenericAllocationHandle handle;  // the driver's, while it is not mapped; then its chunk knows
    uint64_t bytes;
    CUmemAllocationProp properties;
    Place place;
    uint32_t count;  // what the program must release it for
    uint32_t mappings;
    Chunk* chunk;  // of the only mapping, or of the first of several
    bool pinned;
};

// Guarded by the residence's lock.
MemoryTable<Physical> physicals;  // by our number
uint64_t last_number = kFirstNumber;
std::atomic<bool> gives_out_drivers{false};

void forget_in_child() { physicals.abandon(); }
LISTEN(AtFork, ForkStep::handles, forget_in_child)

CUmemGenericAllocationHandle handle_of(const Physical& physical) {
    return physical.chunk ? physical.chunk->handle : physical.handle;
}

void pin(Physical& physical) {
    physical.pinned = true;
    if (physical.chunk) set_pinned(*physical.chunk, true);
}

// As the driver: the memory is there for as long as a handle or a mapping refers to it.
void drop_if_unused(uint64_t number, const Physical& physical) {
    if (physical.count || physical.mappings) return;
    driver.cuMemRelease(physical.handle);
    Physical gone;
    physicals.take(number, &gone);
}

void merge_access(Chunk& chunk, const CUmemAccessDesc& access) {
    for (uint32_t i = 0; i < chunk.access_count; ++i) {
        if (chunk.access[i].location.type != access.location.type || chunk.access[i].location.id != access.location.id)
            continue;
        chunk.access[i].flags = access.flags;
        return;
    }
    if (chunk.access_count < Chunk::kMostAccess) chunk.access[chunk.access_count++] = access;
}

bool can_be_copied(const Chunk& chunk) {
    for (uint32_t i = 0; i < chunk.access_count; ++i)
        if (chunk.access[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
            chunk.access[i].location.id == chunk.properties.location.id)
            return chunk.context && chunk.access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return false;
}

}  // namespace

CUmemGenericAllocationHandle wrap_handle(CUmemGenericAllocationHandle handle, uint64_t bytes,
                                         const CUmemAllocationProp& properties, const Place& place) {
    // With a use of its own (tile pools, compression) it is the driver's and pinned.
    bool plain = properties.allocFlags.usage == 0 && properties.allocFlags.compressionType == 0;
    if (!place || !plain || !Still::memory_moves.load(std::memory_order_relaxed)) return handle;
    if (gives_out_drivers.load(std::memory_order_relaxed)) return handle;
    ResidenceLocked locked;
    uint64_t number = last_number + 1;
    if (!physicals.enter(number, {handle, bytes, properties, place, 1, 0, nullptr, false})) return handle;
    last_number = number;
    start_moving(*place.membership);
    return number;
}

void give_out_drivers_handles() { gives_out_drivers.store(true); }

CUmemGenericAllocationHandle drivers_handle(CUmemGenericAllocationHandle number) {
    if (number < kFirstNumber) return number;
    ResidenceLocked locked;
    const Physical* physical = physicals.find(number);
    return physical && physical->count ? handle_of(*physical) : number;
}

void pin_handle(CUmemGenericAllocationHandle number) {
    if (number < kFirstNumber) return;
    ResidenceLocked locked;
    if (Physical* physical = physicals.find(number)) pin(*physical);
}

void pin_memory(CUdeviceptr address, uint64_t bytes) {
    if (!Still::memory_moves.load(std::memory_order_relaxed)) return;
    ResidenceLocked locked;
    for (uint32_t i = 0; i < residence.chunks.count(); ++i) {
        Chunk& chunk = residence.chunks[i];
        if (!chunk.contains(address) && chunk.address - address >= bytes) continue;
        // A mapping's memory stays pinned when it is mapped elsewhere, or its rights change.
        if (chunk.number)
            pin_handle(chunk.number);
        else
            set_pinned(chunk, true);
    }
}

CUresult release_handle(CUmemGenericAllocationHandle number, bool* is_ours) {
    *is_ours = false;
    if (number < kFirstNumber) return CUDA_SUCCESS;
    ResidenceLocked locked;
    Physical* physical = physicals.find(number);
    if (!physical || !physical->count) return CUDA_SUCCESS;
    *is_ours = true;
    --physical->count;
    drop_if_unused(number, *physical);
    return CUDA_SUCCESS;
}

bool retain_handle(CUdeviceptr pointer, CUmemGenericAllocationHandle* number) {
    if (!Still::memory_moves.load(std::memory_order_relaxed)) return false;
    ResidenceLocked locked;
    Chunk* chunk = residence.chunks.containing(pointer);
    Physical* physical = chunk && chunk->number ? physicals.find(chunk->number) : nullptr;
    if (!physical) return false;
    ++physical->count;
    *number = chunk->number;
    return true;
}

void note_mapped(CUdeviceptr address, uint64_t bytes, CUmemGenericAllocationHandle number) {
    if (number < kFirstNumber) return;
    ResidenceLocked locked;
    Physical* physical = physicals.find(number);
    if (!physical) return;
    if (++physical->mappings > 1) pin(*physical);
    auto* chunk = new (std::nothrow) Chunk;
    if (!chunk) return;
    chunk->address = address;
    chunk->bytes = bytes;
    chunk->handle = handle_of(*physical);
    chunk->mapped = chunk->pinned = true;
    chunk->origin = Chunk::Origin::mapping;
    chunk->gpu = physical->place.gpu;
    chunk->context = owner_of(current_context());
    used_contexts::note(chunk->context);
    chunk->properties = physical->properties;
    chunk->number = number;
    if (!residence.chunks.insert(chunk)) {
        delete chunk;
        return;
    }
    if (physical->mappings == 1) physical->chunk = chunk;
}

void note_unmapped(CUdeviceptr address, uint64_t bytes) {
    if (!Still::memory_moves.load(std::memory_order_relaxed)) return;
    ResidenceLocked locked;
    for (uint32_t i = residence.chunks.count(); i-- > 0;) {
        Chunk* chunk = &residence.chunks[i];
        if (!chunk->number || chunk->address - address >= bytes) continue;
        Physical* physical = physicals.find(chunk->number);
        set_pinned(*chunk, true);
        residence.chunks.remove(chunk);
        if (physical) {
            physical->handle = chunk->handle;
            if (physical->chunk == chunk) physical->chunk = nullptr;
            --physical->mappings;
            drop_if_unused(chunk->number, *physical);
        }
        delete chunk;
    }
}

void note_access(CUdeviceptr address, uint64_t bytes, const CUmemAccessDesc* access, size_t count) {
    if (!Still::memory_moves.load(std::memory_order_relaxed)) return;
    ResidenceLocked locked;
    for (uint32_t i = 0; i < residence.chunks.count(); ++i) {
        Chunk& chunk = residence.chunks[i];
        if (!chunk.number || chunk.address - address >= bytes) continue;
        const Physical* physical = physicals.find(chunk.number);
        for (size_t n = 0; n < count; ++n) merge_access(chunk, access[n]);
        if (!chunk.context) chunk.context = owner_of(current_context());
        set_pinned(chunk, !physical || physical->pinned || !can_be_copied(chunk));
    }
}

}  // namespace tenant
