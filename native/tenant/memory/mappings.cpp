#include "tenant/memory/mappings.h"

#include <new>

#include "tenant/fork.h"
#include "tenant/membership.h"
#include "tenant/memory/table.h"

namespace tenant {

namespace {

struct Physical {
    uint64_t bytes;
    CUdevice device;
    int gpu;
    uint32_t references;
};
struct Handle {
    Physical* physical;
    uint32_t count;  // what it must be released for
};
struct Mapping {
    Physical* physical;
    uint64_t bytes;
};

// Guarded by the ledger's lock.
MemoryTable<Handle> handles;
MemoryTable<Mapping> mappings;  // by address

void forget_in_child() {
    handles.abandon();
    mappings.abandon();
}
LISTEN(AtFork, ForkStep::mappings, forget_in_child)

// What goes back to the GPU, once the lock is released.
struct Freed {
    uint64_t bytes[wire::kGpus] = {};
    bool any = false;

    void drop(Physical* physical) {
        if (--physical->references) return;
        bytes[physical->gpu] += physical->bytes;
        any = true;
        delete physical;
    }
    void give_back() const {
        Membership* membership = any ? Membership::current_if_joined() : nullptr;
        for (int gpu = 0; membership && gpu < wire::kGpus; ++gpu)
            if (bytes[gpu]) give({membership, 0, gpu}, bytes[gpu]);
    }
};

}  // namespace

void keep_physical(Reservation& reservation, CUmemGenericAllocationHandle handle, uint64_t bytes) {
    const Place& place = reservation.place();
    if (!place) return;
    auto* physical = new (std::nothrow) Physical{in_pages(bytes), place.device, place.gpu, 1};
    if (!physical) return;
    LedgerLocked locked;
    if (handles.enter(handle, {physical, 1}))
        reservation.kept();
    else
        delete physical;
}

void release_physical(CUmemGenericAllocationHandle handle) {
    Freed freed;
    {
        LedgerLocked locked;
        Handle* known = handles.find(handle);
        if (!known) return;
        Physical* physical = known->physical;
        Handle gone;
        if (--known->count == 0) handles.take(handle, &gone);
        freed.drop(physical);
    }
    freed.give_back();
}

void map_physical(CUdeviceptr address, uint64_t bytes, CUmemGenericAllocationHandle handle) {
    LedgerLocked locked;
    Handle* known = handles.find(handle);
    if (known && mappings.enter(address, {known->physical, bytes})) ++known->physical->references;
}

void unmap_physical(CUdeviceptr address, uint64_t bytes) {
    Freed freed;
    {
        LedgerLocked locked;
        Mapping mapping;
        if (bytes / kMemoryPage > mappings.count()) {
            mappings.remove_if([&](uint64_t at, const Mapping& one) {
                if (at - address >= bytes) return false;
                freed.drop(one.physical);
                return true;
            });
        } else {
            for (uint64_t done = 0; done < bytes;) {
                bool mapped = mappings.take(address + done, &mapping);
                if (mapped) freed.drop(mapping.physical);
                done += mapped && mapping.bytes ? mapping.bytes : kMemoryPage;
            }
        }
    }
    freed.give_back();
}

void retain_physical(CUmemGenericAllocationHandle handle, uint64_t address) {
    LedgerLocked locked;
    Physical* physical = nullptr;
    mappings.remove_if([&](uint64_t at, const Mapping& mapping) {
        if (address - at < mapping.bytes) physical = mapping.physical;
        return false;
    });
    if (!physical) return;
    if (Handle* known = handles.find(handle))
        ++known->count;
    else if (!handles.enter(handle, {physical, 1}))
        return;
    ++physical->references;
}

}  // namespace tenant
