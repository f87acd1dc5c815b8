#include "tenant/memory/pools.h"

#include <algorithm>
#include <cstdlib>

#include "tenant/context.h"
#include "tenant/context_end.h"
#include "tenant/fork.h"
#include "tenant/green_contexts.h"
#include "tenant/membership.h"
#include "tenant/memory/table.h"
#include "tenant/relaxed.h"

namespace tenant {

namespace {

constexpr uint32_t kMostPools = 256;  // further ones are not counted

struct KnownPool {
    CUmemoryPool handle;
    Place place;
    uint64_t counted;
};
struct GraphMemory {
    Place place;
    uint64_t counted;
};
using Promise = GraphMemoryPromise;

// Guarded by the ledger's lock.
KnownPool pools[kMostPools];
uint32_t pool_count = 0;
GraphMemory graph_memory[kMostDevices];
MemoryTable<Promise> promises;  // by executable graph

std::atomic<uint64_t> known_devices{0};  // whose default pool and graph memory are counted
std::atomic<bool> made_pools{false};     // the program has pools of its own

void forget_in_child() {
    pool_count = 0;
    promises.abandon();
    known_devices.store(0);
    made_pools.store(false);
}
LISTEN(AtFork, ForkStep::pools, forget_in_child)

bool attribute(CUmemoryPool pool, CUmemPool_attribute which, uint64_t* out) {
    cuuint64_t value = 0;
    if (driver.cuMemPoolGetAttribute(pool, which, &value) != CUDA_SUCCESS) return false;
    *out = value;
    return true;
}

void enter_pool(CUmemoryPool pool, const Place& place) {
    if (pool_count < kMostPools) pools[pool_count++] = {pool, place, 0};
}

Change move_to(const Place& place, uint64_t* counted, uint64_t now) {
    Change change = now == *counted ? Change::none : now > *counted ? Change::grew : Change::shrank;
    correct(place, *counted, now);
    *counted = now;
    return change;
}

Change settle_graph_memory(GraphMemory& memory) {
    cuuint64_t reserved = 0;
    if (driver.cuDeviceGetGraphMemAttribute(memory.place.device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved) !=
        CUDA_SUCCESS)
        return Change::none;
    uint64_t bytes = reserved;
    promises.remove_if([&](uint64_t, const Promise& promise) {
        if (promise.device == memory.place.device) bytes = std::max(bytes, promise.bytes);
        return false;
    });
    return move_to(memory.place, &memory.counted, bytes);
}

Change settle_locked() {
    Change changed = Change::none;
    for (uint32_t i = 0; i < pool_count; ++i) {
        uint64_t reserved = 0;
        if (pools[i].place && attribute(pools[i].handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved))
            changed = std::max(changed, move_to(pools[i].place, &pools[i].counted, reserved));
    }
    for (uint64_t known = known_devices.load(); known; known &= known - 1)
        changed = std::max(changed, settle_graph_memory(graph_memory[__builtin_ctzll(known)]));
    return changed;
}

// Nobody destroys the execs of a context that has ended.
void forget_context(CUcontext context) {
    if (!Membership::current_if_joined()) return;
    LedgerLocked locked;
    promises.remove_if([&](uint64_t, const Promise& promise) { return promise.context == context; });
    settle_locked();
}
LISTEN(AtContextEnd, ContextEndStep::ledger, forget_context)

}  // namespace

Place place_of_pool(CUmemoryPool pool) {
    {
        LedgerLocked locked;
        for (uint32_t i = 0; i < pool_count; ++i)
            if (pools[i].handle == pool) return pools[i].place;
    }
    int devices = 0;
    CUmemoryPool its_own = nullptr;
    driver.cuDeviceGetCount(&devices);
    for (CUdevice device = 0; device < devices; ++device)
        if (driver.cuDeviceGetDefaultMemPool(&its_own, device) == CUDA_SUCCESS && its_own == pool)
            return place_of_device(device);
    return place_of_current_context();
}

void know_pools_of(const Place& place) {
    uint64_t bit = uint64_t{1} << place.device;
    if (known_devices.load(std::memory_order_acquire) & bit) return;
    CUmemoryPool pool = nullptr;
    bool has_pool = driver.cuDeviceGetDefaultMemPool(&pool, place.device) == CUDA_SUCCESS;
    LedgerLocked locked;
    if (known_devices.fetch_or(bit) & bit) return;
    if (has_pool) enter_pool(pool, place);
    graph_memory[place.device] = {place, 0};
}

bool fits_in_pool(CUmemoryPool pool, const Place& place, uint64_t bytes) {
    uint64_t reserved = 0, used = 0;
    if (!pool && driver.cuDeviceGetMemPool(&pool, place.device) != CUDA_SUCCESS) return false;
    return attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) &&
           attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) && reserved - std::min(reserved, used) >= bytes;
}

void note_pooled(CUmemoryPool pool, const Place& place, CUdeviceptr pointer, uint64_t bytes) {
    if (!made_pools.load(std::memory_order_relaxed) || !pointer) return;
    if (pool || driver.cuDeviceGetMemPool(&pool, place.device) == CUDA_SUCCESS)
        remember_pooled(place, pointer, bytes, pool);
}

void know_pool(CUmemoryPool pool, const Place& place) {
    if (place) made_pools.store(true);
    LedgerLocked locked;
    enter_pool(pool, place);
}

EndingPool::EndingPool(CUmemoryPool pool) : pool_(pool) {
    LedgerLocked locked;
    for (uint32_t i = 0; i < pool_count; ++i) {
        if (pools[i].handle != pool) continue;
        place_ = pools[i].place;
        counted_ = pools[i].counted;
        pools[i] = pools[--pool_count];
        return;
    }
}

CUresult EndingPool::result(CUresult result) {
    if (!place_) return result;
    LedgerLocked locked;
    if (result == CUDA_SUCCESS)
        // What was allocated from it stays until it is freed.
        move_to(place_, &counted_, count_one_by_one(pool_));
    else if (pool_count < kMostPools)
        pools[pool_count++] = {pool_, place_, counted_};
    return result;
}

EndingPools::EndingPools(CUdevice device) : device_(device) {
    if (device < 0 || device >= kMostDevices || !Membership::current_if_joined()) return;
    LedgerLocked locked;
    uint64_t bit = uint64_t{1} << device;
    known_ = known_devices.fetch_and(~bit) & bit;
    if (!known_) return;
    CUmemoryPool of_device = nullptr;
    driver.cuDeviceGetDefaultMemPool(&of_device, device);
    for (uint32_t i = 0; i < pool_count; ++i) {
        if (pools[i].handle != of_device) continue;
        move_to(pools[i].place, &pools[i].counted, 0);
        pools[i] = pools[--pool_count];
        break;
    }
    move_to(graph_memory[device].place, &graph_memory[device].counted, 0);
}

EndingPools::~EndingPools() {
    Membership* membership = known_ ? Membership::current_if_joined() : nullptr;
    if (!membership) return;
    // Pools belong to the device: they are there after its context, with what is allocated in them.
    know_pools_of(place_of_device(device_));
    settle_pools(*membership);
}

Change settle_pools(Membership& membership) {
    if (Membership::current_if_joined() != &membership) return Change::none;
    LedgerLocked locked;
    return settle_locked();
}

void settle_pools() {
    if (Membership* membership = Membership::current_if_joined()) settle_pools(*membership);
}

void trim_pools(const Place& place) {
    Relaxed relaxed;
    {
        LedgerLocked locked;
        for (uint32_t i = 0; i < pool_count; ++i)
            if (pools[i].place.gpu == place.gpu) driver.cuMemPoolTrimTo(pools[i].handle, 0);
    }
    driver.cuDeviceGraphMemTrim(place.device);
    settle_pools(*place.membership);
}

// Going through its nodes in the order in which they were made.
uint64_t graph_memory_of(CUgraph graph, CUdevice* device) {
    size_t count = 0;
    if (driver.cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS || count == 0) return 0;
    auto* nodes = static_cast<CUgraphNode*>(calloc(count, sizeof(CUgraphNode)));
    uint64_t most = 0, now = 0;
    MemoryTable<uint64_t> allocated;
    if (!nodes || driver.cuGraphGetNodes(graph, nodes, &count) != CUDA_SUCCESS) count = 0;
    for (size_t i = 0; i < count; ++i) {
        CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
        driver.cuGraphNodeGetType(nodes[i], &type);
        if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
            CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
            if (driver.cuGraphMemAllocNodeGetParams(nodes[i], &parameters) != CUDA_SUCCESS) continue;
            *device = parameters.poolProps.location.id;
            allocated.enter(parameters.dptr, parameters.bytesize);
            most = std::max(most, now += parameters.bytesize);
        } else if (type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
            CUdeviceptr pointer = 0;
            uint64_t bytes = 0;
            if (driver.cuGraphMemFreeNodeGetParams(nodes[i], &pointer) == CUDA_SUCCESS &&
                allocated.take(pointer, &bytes))
                now -= bytes;
        }
    }
    free(nodes);
    allocated.discard();
    return most;
}

uint64_t graph_memory_counted(const Place& place) {
    LedgerLocked locked;
    settle_locked();
    return graph_memory[place.device].counted;
}

void promise_graph_memory(CUgraphExec exec, const Place& place, uint64_t bytes) {
    CUcontext context = owner_of(current_context());
    LedgerLocked locked;
    promises.enter(reinterpret_cast<uint64_t>(exec), {place.device, bytes, context});
    settle_locked();
}

EndingGraphMemory::EndingGraphMemory(CUgraphExec exec) : exec_(reinterpret_cast<uint64_t>(exec)) {
    if (!Membership::current_if_joined()) return;
    LedgerLocked locked;
    known_ = promises.take(exec_, &promise_);
}

CUresult EndingGraphMemory::result(CUresult result) {
    if (!known_) return result;
    LedgerLocked locked;
    if (result != CUDA_SUCCESS) promises.enter(exec_, promise_);
    settle_locked();
    return result;
}

}  // namespace tenant
