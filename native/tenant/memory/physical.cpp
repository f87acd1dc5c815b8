#include "tenant/memory/physical.h"

#include <atomic>
#include <new>

#include "tenant/context.h"
#include "tenant/fork.h"
#include "tenant/green_contexts.h"
#include "tenant/membership.h"
#include "tenant/memory/mover.h"
#include "tenant/memory/residence.h"
#include "tenant/memory/table.h"
#include "tenant/memory/used_contexts.h"

namespace tenant {

struct Physical {
    uint64_t bytes;  // as counted
    int gpu;
    uint32_t references;  // handles that the program must release, and mappings
    // Of one that the program has by a number of ours; the rest only then.
    uint64_t number;
    CUmemGenericAllocationHandle handle;  // the driver's, while it is not mapped; then its chunk knows
    CUmemAllocationProp properties;
    uint32_t mappings;
    Chunk* chunk;  // of the only mapping, or of the first of several
    bool pinned;
};

namespace {

// No address that a driver's handle could be.
constexpr uint64_t kFirstNumber = uint64_t{0xc07e} << 48;

struct Handle {
    Physical* physical;
    uint32_t count;  // what it must be released for
};
struct Mapping {
    Physical* physical;
    uint64_t bytes;
};

// Guarded by the residence's lock.
MemoryTable<Handle> handles;    // by what the program has
MemoryTable<Mapping> mappings;  // by address
uint64_t last_number = kFirstNumber;
std::atomic<bool> gives_out_drivers{false};

void forget_in_child() {
    handles.abandon();
    mappings.abandon();
}
LISTEN(AtFork, ForkStep::physical, forget_in_child)

CUmemGenericAllocationHandle handle_of(const Physical& physical) {
    return physical.chunk ? physical.chunk->handle : physical.handle;
}

void pin(Physical& physical) {
    physical.pinned = true;
    if (physical.chunk) set_pinned(*physical.chunk, true);
}

// What goes back to the GPU, once the lock is released.
class Freed {
 public:
    ~Freed() {
        Membership* membership = any_ ? Membership::current_if_joined() : nullptr;
        for (int gpu = 0; membership && gpu < wire::kGpus; ++gpu)
            if (bytes_[gpu]) give({membership, 0, gpu}, bytes_[gpu]);
    }
    void drop(Physical* physical) {
        if (--physical->references) return;
        if (physical->number) driver.cuMemRelease(physical->handle);
        bytes_[physical->gpu] += physical->bytes;
        any_ = true;
        delete physical;
    }

 private:
    uint64_t bytes_[wire::kGpus] = {};
    bool any_ = false;
};

Physical* mapped_at(CUdeviceptr pointer) {
    Physical* found = nullptr;
    mappings.each([&](uint64_t address, const Mapping& mapping) {
        if (pointer - address < mapping.bytes) found = mapping.physical;
    });
    return found;
}

bool add_handle(CUmemGenericAllocationHandle handle, Physical* physical) {
    if (Handle* known = handles.find(handle))
        ++known->count;
    else if (!handles.enter(handle, {physical, 1}))
        return false;
    ++physical->references;
    return true;
}

void make_chunk(CUdeviceptr address, uint64_t bytes, Physical& physical) {
    if (++physical.mappings > 1) pin(physical);
    auto* chunk = new (std::nothrow) Chunk;
    if (!chunk) return;
    chunk->address = address;
    chunk->bytes = bytes;
    chunk->handle = handle_of(physical);
    chunk->mapped = chunk->pinned = true;
    chunk->origin = Chunk::Origin::mapping;
    chunk->gpu = physical.gpu;
    chunk->context = owner_of(current_context());
    used_contexts::note(chunk->context);
    chunk->properties = physical.properties;
    chunk->physical = &physical;
    if (!residence.chunks.insert(chunk))
        delete chunk;
    else if (physical.mappings == 1)
        physical.chunk = chunk;
}

// Null: there was none.
Chunk* remove_chunk(CUdeviceptr address, Physical& physical) {
    --physical.mappings;
    Chunk* chunk = residence.chunks.containing(address);
    if (!chunk || chunk->physical != &physical) return nullptr;
    residence.chunks.remove(chunk);
    physical.handle = chunk->handle;
    if (physical.chunk == chunk) physical.chunk = nullptr;
    return chunk;
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

CUmemGenericAllocationHandle keep_physical(Reservation& reservation, CUmemGenericAllocationHandle handle,
                                           uint64_t bytes, const CUmemAllocationProp& properties) {
    const Place& place = reservation.place();
    if (!place) return handle;
    // With a use of its own (tile pools, compression) it is the driver's and pinned.
    bool plain = properties.allocFlags.usage == 0 && properties.allocFlags.compressionType == 0;
    bool moves = plain && Still::memory_moves.load(std::memory_order_relaxed) && !gives_out_drivers.load();
    ResidenceLocked locked;
    uint64_t number = moves ? last_number + 1 : 0;
    auto* physical =
        new (std::nothrow) Physical{in_pages(bytes), place.gpu, 1, number, handle, properties, 0, nullptr, false};
    if (!physical || !handles.enter(number ? number : handle, {physical, 1})) {
        delete physical;
        return handle;
    }
    reservation.kept();
    if (!number) return handle;
    last_number = number;
    start_moving(*place.membership);
    return number;
}

void give_out_drivers_handles() { gives_out_drivers.store(true); }

bool is_number(CUmemGenericAllocationHandle handle) {
    if (handle < kFirstNumber) return false;
    ResidenceLocked locked;
    return handles.find(handle) != nullptr;
}

CUmemGenericAllocationHandle drivers_handle(CUmemGenericAllocationHandle handle) {
    if (handle < kFirstNumber) return handle;
    ResidenceLocked locked;
    const Handle* known = handles.find(handle);
    return known ? handle_of(*known->physical) : handle;
}

void pin_handle(CUmemGenericAllocationHandle handle) {
    if (handle < kFirstNumber) return;
    ResidenceLocked locked;
    if (Handle* known = handles.find(handle)) pin(*known->physical);
}

void pin_memory(CUdeviceptr address, uint64_t bytes) {
    if (!Still::memory_moves.load(std::memory_order_relaxed)) return;
    ResidenceLocked locked;
    for (uint32_t i = 0; i < residence.chunks.count(); ++i) {
        Chunk& chunk = residence.chunks[i];
        if (!chunk.contains(address) && chunk.address - address >= bytes) continue;
        // A mapping's memory stays pinned when it is mapped elsewhere, or its rights change.
        if (chunk.physical)
            pin(*chunk.physical);
        else
            set_pinned(chunk, true);
    }
}

bool retain_number(CUdeviceptr pointer, CUmemGenericAllocationHandle* handle) {
    if (!Still::memory_moves.load(std::memory_order_relaxed)) return false;
    ResidenceLocked locked;
    Physical* physical = mapped_at(pointer);
    if (!physical || !physical->number || !add_handle(physical->number, physical)) return false;
    *handle = physical->number;
    return true;
}

void retain_physical(CUdeviceptr pointer, CUmemGenericAllocationHandle handle) {
    ResidenceLocked locked;
    if (Physical* physical = mapped_at(pointer)) add_handle(handle, physical);
}

void release_physical(CUmemGenericAllocationHandle handle) {
    Freed freed;
    ResidenceLocked locked;
    Handle* known = handles.find(handle);
    if (!known) return;
    Physical* physical = known->physical;
    Handle gone;
    if (--known->count == 0) handles.take(handle, &gone);
    freed.drop(physical);
}

void map_physical(CUdeviceptr address, uint64_t bytes, CUmemGenericAllocationHandle handle) {
    ResidenceLocked locked;
    const Handle* known = handles.find(handle);
    if (!known) return;
    Physical* physical = known->physical;
    if (!mappings.enter(address, {physical, bytes})) {
        pin(*physical);
        return;
    }
    ++physical->references;
    // What is not mapped would not be there after an eviction.
    if (in_pages(bytes) != physical->bytes) pin(*physical);
    if (physical->number) make_chunk(address, bytes, *physical);
}

void unmap_physical(CUdeviceptr address, uint64_t bytes) {
    Freed freed;
    ResidenceLocked locked;
    auto remove = [&](CUdeviceptr at, Physical* physical) {
        Chunk* chunk = physical->number ? remove_chunk(at, *physical) : nullptr;
        freed.drop(physical);
        if (!chunk) return;
        show_movable(*chunk, false);
        delete chunk;
    };
    if (bytes / kMemoryPage > mappings.count()) {
        mappings.remove_if([&](uint64_t at, const Mapping& mapping) {
            if (at - address >= bytes) return false;
            remove(at, mapping.physical);
            return true;
        });
        return;
    }
    for (uint64_t done = 0; done < bytes;) {
        Mapping mapping{};
        bool mapped = mappings.take(address + done, &mapping);
        if (mapped) remove(address + done, mapping.physical);
        done += mapped && mapping.bytes ? mapping.bytes : kMemoryPage;
    }
}

void set_access(CUdeviceptr address, uint64_t bytes, const CUmemAccessDesc* access, size_t count) {
    if (!Still::memory_moves.load(std::memory_order_relaxed)) return;
    ResidenceLocked locked;
    for (uint32_t i = 0; i < residence.chunks.count(); ++i) {
        Chunk& chunk = residence.chunks[i];
        if (!chunk.physical || chunk.address - address >= bytes) continue;
        for (size_t n = 0; n < count; ++n) merge_access(chunk, access[n]);
        if (!chunk.context) chunk.context = owner_of(current_context());
        set_pinned(chunk, chunk.physical->pinned || !can_be_copied(chunk));
    }
}

}  // namespace tenant
