// The book of the memory that can move: allocations made of CUDA's virtual memory management (addresses apart from the
// memory behind them), so that the memory behind them can be evicted and restored (eviction.h).
//
// To the program they look like the driver's own: address, alignment, size, errors, waiting for the GPU before a free,
// the end with their context. What cannot be made that way, the driver allocates; that memory is pinned.
//
// Everything here is called while a Still exists, except what the mover calls while no thread is inside.
#pragma once

#include "tenant/locked.h"
#include "tenant/memory/eviction.h"
#include "tenant/memory/ledger.h"
#include "tenant/memory/move_barrier.h"

namespace tenant {

// Whether one of these begins there.
bool is_movable(CUdeviceptr pointer);
// Nothing on the GPU uses it any more. False: nothing begins there.
bool give_back_movable(CUdeviceptr pointer);
// The allocation that a pointer lies in; false: not one of these.
struct MovableRange {
    uint64_t base;
    uint64_t bytes;
    CUcontext context;
    bool exportable;  // other processes can have it (ipc_export.h)
};
bool movable_range(CUdeviceptr pointer, MovableRange* out);

// What can move now, and what is behind no address now.
struct MovableBytes {
    uint64_t all[wire::kGpus] = {};
    uint64_t absent[wire::kGpus] = {};
};
MovableBytes movable_bytes();

// The mover looks at once, instead of when its nap is over.
void wake_mover();

// For what makes and moves it.
struct Residence {
    Lock lock;  // recursive; with it the driver is called, but only the end of a context waits for the GPU
    Chunks chunks;
    HostPool pool;
    Eviction eviction;
    wire::Slot* slot;      // shows how much can move
    bool only_exportable;  // memory that no other process could open, the driver shall serve
};
extern Residence residence;

// Under the lock.
void set_pinned(Chunk& chunk, bool pinned);
// Shown from before the driver is asked for it until the driver has freed it, as it is counted: to a tenant that waits
// for space, bytes that are counted and cannot move are there to stay.
void show_movable(Chunk& chunk, bool shown);
CUresult enter_chunk(Chunk* chunk);  // discards it where it fails
void discard_chunk(Chunk* chunk);    // with what is behind it

class ResidenceLocked : Locked {
 public:
    ResidenceLocked() : Locked(residence.lock) {}
};

// Around the end of a context: meanwhile nobody else uses one from here.
class MemoryOfEndingContext {
    Still still_;
    ResidenceLocked locked_;
};

}  // namespace tenant
