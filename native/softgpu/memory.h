// What this process knows of device memory: which addresses are what, whose, and who may touch them.
//
// A device pointer is an address of this process. Device memory is mapped lazily by the kernel, so a device with more
// memory than the machine costs only what is touched; the capacity is kept by the device's process for all.
//
// Locks: `mutex` is held shared while an effect touches memory and exclusively while memory is mapped, unmapped or
// looked up for change. The device's process is never asked while it is held: the thread that would bring the answer
// may be waiting for it in an effect.
#pragma once

#include "softgpu/entry.h"

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <shared_mutex>
#include <vector>

#include "softgpu/memory_blocks.h"
#include "softgpu/memory_ranges.h"

namespace softgpu {

constexpr uint64_t granularity = 2ull << 20;  // of device memory: what the driver takes and what it maps at once

constexpr bool is_multiple(uint64_t value, uint64_t of) { return value % of == 0; }
constexpr uint64_t round_up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

struct Physical;  // memory that cuMemCreate made (vmm.h)
struct Pool;      // pool.h

enum class MemoryKind { device, pooled, managed, host, registered, mapping, opened };

// Registered pages that can be mapped twice (shared ones: a file, POSIX shared memory), mapped a second time. A driver
// pins what is registered, so that the device reaches it when the program has unmapped its own mapping.
struct PinnedPages {
    uint64_t registered_at;  // where the program has, or had, the first of them
    Span here;
    PinnedPages(uint64_t registered_at, Span here) : registered_at(registered_at), here(here) {}
    PinnedPages(const PinnedPages&) = delete;
    PinnedPages& operator=(const PinnedPages&) = delete;
    ~PinnedPages();
};

// Memory of another process (ipc.cpp).
struct OpenedPages {
    Span here{0, 0};
    uint64_t key = 0, allocation = 0;  // of its handle
    int count = 1;                     // that it has to be closed
    OpenedPages() = default;
    OpenedPages(const OpenedPages&) = delete;
    OpenedPages& operator=(const OpenedPages&) = delete;
    ~OpenedPages();
};

// Pages of this process that others can open.
struct SharedPages {
    int file;
    uint64_t key;
};

struct Allocation {
    MemoryKind kind;
    int device;                      // the ordinal; for host memory, of the context that made it
    const Context* owner = nullptr;  // for comparison only; null: it outlives contexts (virtual memory)
    std::weak_ptr<Context> owner_ref;
    CUcontext context = nullptr;
    uint64_t id = 0;         // unique in the process
    uint64_t accounted = 0;  // bytes of the device that are given back with it; 0 where a block or pool has them
    bool freed_in_a_stream = false;           // by cuMemFreeAsync, not reached yet: no stream may free it again
    std::shared_ptr<PinnedPages> pinned;      // registered; null where its pages cannot be mapped twice
    std::shared_ptr<Pool> pool;               // pooled
    std::shared_ptr<Physical> physical;       // mapping
    std::shared_ptr<OpenedPages> opened;      // opened
    std::map<int, CUmemAccess_flags> access;  // mapping: by device; absent is none
    bool on_host() const { return kind == MemoryKind::host || kind == MemoryKind::registered; }
};

using Allocations = RangeTable<Allocation>;

struct Memory {
    std::shared_mutex mutex;
    Allocations allocations;
    RangeTable<int> pool_blocks;             // what pools hold, used or not: the hardware can reach all of it
    RangeTable<uint64_t> reservations;       // of addresses; the value is an id
    std::map<const Context*, Blocks> small;  // cuMemAlloc of less than a block, by context
    std::map<uint64_t, SharedPages> shared;  // by the first page
    // Plain allocations that streams have freed since the host last synchronised: cuMemFree takes them once more.
    std::set<CUdeviceptr> freed_by_streams;
    uint64_t last_id = 0;
};

Memory& memory();  // never destroyed: effects may still run while the process ends

// The device's capacity, shared with all processes. To be called without the lock.
bool reserve_on(int device, uint64_t bytes);
void release_on(int device, uint64_t bytes);
CUresult memory_info(int device, MemoryInfo* out);

// Fresh zero pages that cost nothing until touched; 0 where the kernel refuses.
uint64_t map_pages(uint64_t bytes);
void unmap_pages(Span pages);

// With the lock held, before the pages are unmapped: nobody opens them any more. Who has, keeps them.
void stop_sharing(Memory& all, uint64_t base);

// With the lock held (shared will do): whether a device may touch it now.
bool reachable(int device, uint64_t address, uint64_t bytes, bool for_writing);

// Whether the process has pages at every address of the range: not that they may be touched.
bool has_pages(uint64_t address, uint64_t bytes);

// An entry point that needs a context: body(ContextRef&).
template <typename Body>
CUresult in_context(Body&& body) noexcept {
    return entry([&]() -> CUresult {
        ContextRef context;
        TRY(current_context(&context));
        return body(context);
    });
}

Allocation made_in(const ContextRef& context, MemoryKind kind);
CUresult allocate(const ContextRef& context, uint64_t bytes, MemoryKind kind, CUdeviceptr* out);
// Takes an allocation out of the table and gives its memory back; for every kind that cuMemFree accepts.
CUresult free_device_memory(CUdeviceptr pointer);
// The same when the stream gets there, for memory that is no pool's.
CUresult free_device_memory_in_order(CUdeviceptr pointer, CUstream stream, DefaultStream which);
void forget_frees_by_streams();  // the host has synchronised; cheap when there were none

// pool.cpp: a freed piece goes back to its pool. Unused memory of the device's pools goes back to the device: all of
// it, or what lies beyond their release thresholds; without the lock.
void give_back(Pool& pool, Span piece);
enum class Trim { to_threshold, to_nothing };
void trim_pools_of(int device, Trim how);

void release_arrays_of(const Context& context);  // memory_array.cpp

}  // namespace softgpu
