#include "softgpu/pool.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "softgpu/stream.h"

namespace softgpu {
namespace {

constexpr uint64_t block_bytes = 32ull << 20;

struct Pools {
    std::map<CUmemoryPool, std::shared_ptr<Pool>> alive;  // by handle
    std::vector<std::shared_ptr<Pool>> all;               // with destroyed ones that still hold memory
    std::map<int, std::shared_ptr<Pool>> of_device;       // the default ones
    uintptr_t last_handle = 0x500000000000;
};

// Guarded by memory().mutex. Never destroyed, as effects may still run while the process ends.
Pools& pools() {
    static Pools* const instance = new Pools;
    return *instance;
}

// Whether any pool may have something to give back; keeps synchronisation cheap.
std::atomic<bool> something_unused{false};

std::shared_ptr<Pool> make_pool_locked(int device) {
    auto pool = std::make_shared<Pool>();
    pool->handle = reinterpret_cast<CUmemoryPool>(pools().last_handle += 16);
    pool->device = device;
    pools().alive[pool->handle] = pool;
    pools().all.push_back(pool);
    return pool;
}

std::shared_ptr<Pool> default_pool_locked(int device) {
    std::shared_ptr<Pool>& pool = pools().of_device[device];
    if (!pool) {
        pool = make_pool_locked(device);
        pool->is_default = true;
    }
    return pool;
}

std::shared_ptr<Pool> pool_locked(CUmemoryPool handle) {
    const auto found = pools().alive.find(handle);
    return found == pools().alive.end() ? nullptr : found->second;
}

// Holds more of the device, as much as is usual, or else as little as will do.
bool grow(Pool& pool, uint64_t bytes) {
    const uint64_t least = round_up(bytes, granularity);
    for (const uint64_t size : {std::max(least, block_bytes), least}) {
        {
            const std::shared_lock<std::shared_mutex> lock(memory().mutex);
            if (pool.max_bytes != 0 && pool.blocks.reserved() + size > pool.max_bytes) continue;
        }
        if (!reserve_on(pool.device, size)) continue;
        const uint64_t base = map_pages(size);
        if (base == 0) {
            release_on(pool.device, size);
            return false;
        }
        const std::unique_lock<std::shared_mutex> lock(memory().mutex);
        pool.add_block({base, size});
        return true;
    }
    return false;
}

uint64_t take(Pool& pool, uint64_t bytes, const StreamKey& stream, const ContextRef& context) {
    const auto try_once = [&] {
        const std::unique_lock<std::shared_mutex> lock(memory().mutex);
        return pool.take(bytes, stream);
    };
    uint64_t base = try_once();
    if (base == 0 && grow(pool, bytes)) base = try_once();
    if (base != 0) return base;
    // What other streams have freed but not reached yet is the last resort.
    if (synchronize(*context) != CUDA_SUCCESS) return 0;
    base = try_once();
    if (base == 0 && grow(pool, bytes)) base = try_once();
    return base;
}

// The parameters of an allocation in stream order, which are a graph's once captured: then the memory lives as long as
// the graph and its copies.
struct OrderedAllocation {
    CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
    uint64_t id = 0;
    bool captured = false;

    ~OrderedAllocation() {
        if (!captured) return;
        Memory& all = memory();
        const std::unique_lock<std::shared_mutex> lock(all.mutex);
        const Allocations::Entry* const entry = all.allocations.starting_at(parameters.dptr);
        if (!entry || entry->value.id != id) return;
        const Span piece{entry->base, entry->size};
        all.allocations.take(piece.base).pool->give_back(piece);
    }
};

void undo_allocation(CUdeviceptr base) {
    Memory& all = memory();
    const std::unique_lock<std::shared_mutex> lock(all.mutex);
    const Span piece{base, all.allocations.starting_at(base)->size};
    all.allocations.take(base).pool->give_back(piece);
}

CUresult allocate_in_order(CUdeviceptr* out, size_t bytes, const CUmemoryPool* from, CUstream stream,
                           DefaultStream which) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    ContextRef context;
    TRY(current_context(&context));
    if (bytes == 0) {  // accepted, unlike by cuMemAlloc: nothing is allocated, and null may be freed
        *out = 0;
        return CUDA_SUCCESS;
    }
    // Of the stream's device, whichever is current.
    StreamRef ordered_by;
    TRY(find_stream(stream, which, &ordered_by, &context));
    std::shared_ptr<Pool> pool;
    {
        const std::unique_lock<std::shared_mutex> lock(memory().mutex);
        pool = from ? pool_locked(*from) : default_pool_locked(device_of(*context));
    }
    if (!pool) return CUDA_ERROR_INVALID_VALUE;
    if (bytes > UINT64_MAX - granularity) return CUDA_ERROR_OUT_OF_MEMORY;
    const uint64_t base = take(*pool, bytes, key_of(stream, which), context);
    if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;

    auto ordered = std::make_shared<OrderedAllocation>();
    ordered->parameters.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    ordered->parameters.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {pool->device}};
    ordered->parameters.bytesize = bytes;
    ordered->parameters.dptr = base;
    {
        Allocation allocation = made_in(context, MemoryKind::pooled);
        allocation.device = pool->device;
        allocation.pool = pool;
        Memory& all = memory();
        const std::unique_lock<std::shared_mutex> lock(all.mutex);
        ordered->id = allocation.id = ++all.last_id;
        all.allocations.insert(base, bytes, std::move(allocation));
    }
    Operation operation;
    operation.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    operation.node_params = std::shared_ptr<const void>(ordered, &ordered->parameters);
    OpId done = 0;
    if (const CUresult result = enqueue(stream, which, std::move(operation), &done); result != CUDA_SUCCESS) {
        undo_allocation(base);
        return result;
    }
    ordered->captured = done == 0;
    *out = base;
    return CUDA_SUCCESS;
}

CUresult free_in_order(CUdeviceptr pointer, CUstream stream, DefaultStream which) {
    ContextRef context;
    TRY(current_context(&context));
    if (pointer == 0) return CUDA_SUCCESS;
    Memory& all = memory();
    std::shared_ptr<Pool> pool;
    uint64_t size, id;
    Allocation freed;
    {
        std::unique_lock<std::shared_mutex> lock(all.mutex);
        const Allocations::Entry* const entry = all.allocations.starting_at(pointer);
        if (!entry) return CUDA_ERROR_INVALID_VALUE;
        if (entry->value.kind != MemoryKind::pooled) {
            lock.unlock();
            return free_device_memory_in_order(pointer, stream, which);
        }
        size = entry->size;
        freed = all.allocations.take(pointer);
        pool = freed.pool;
        id = ++all.last_id;
        pool->pending.push_back({id, key_of(stream, which), {pointer, Blocks::rounded(size)}});
    }
    Operation operation;
    operation.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
    operation.node_params = std::make_shared<const CUdeviceptr>(pointer);
    operation.effect = [pool, id](const Timing&) {
        const std::unique_lock<std::shared_mutex> lock(memory().mutex);
        pool->finish_free(id);
        return 0;
    };
    OpId done = 0;
    const CUresult result = enqueue(stream, which, std::move(operation), &done);
    if (result == CUDA_SUCCESS && done != 0) return CUDA_SUCCESS;
    // Not freed, or freed by a graph, which keeps its memory for its next launch.
    const std::unique_lock<std::shared_mutex> lock(all.mutex);
    pool->pending.remove_if([id](const Pool::PendingFree& free) { return free.id == id; });
    all.allocations.insert(pointer, size, std::move(freed));
    return result;
}

}  // namespace

StreamKey key_of(CUstream stream, DefaultStream which) {
    if (!stream) stream = which == DefaultStream::legacy ? CU_STREAM_LEGACY : CU_STREAM_PER_THREAD;
    return {stream, stream == CU_STREAM_PER_THREAD ? static_cast<uint64_t>(syscall(SYS_gettid)) : 0};
}

uint64_t Pool::take(uint64_t bytes, const StreamKey& stream) {
    bytes = Blocks::rounded(bytes);
    uint64_t base = 0;
    for (PendingFree& free : pending) {
        if (!(free.stream == stream) || free.piece.size < bytes) continue;
        base = free.piece.base;
        free.piece = {base + bytes, free.piece.size - bytes};
        used -= bytes;
        break;
    }
    if (base == 0) base = blocks.take(bytes);
    if (base == 0) return 0;
    used += bytes;
    return base;
}

void Pool::add_block(Span block) {
    blocks.add(block);
    memory().pool_blocks.insert(block.base, block.size, device);
    something_unused = true;
}

void Pool::give_back(Span piece) {
    used -= Blocks::rounded(piece.size);
    blocks.give(piece);
    something_unused = true;
}

void Pool::finish_free(uint64_t id) {
    const auto found = std::find_if(pending.begin(), pending.end(), [id](const auto& free) { return free.id == id; });
    if (found == pending.end()) return;
    if (found->piece.size != 0) give_back(found->piece);
    pending.erase(found);
}

namespace {

uint64_t trim_locked(Pool& pool, uint64_t keep) {
    uint64_t bytes = 0;
    for (const Span& block : pool.blocks.trim(keep)) {
        memory().pool_blocks.take(block.base);
        unmap_pages(block);
        bytes += block.size;
    }
    return bytes;
}

}  // namespace

void give_back(Pool& pool, Span piece) { pool.give_back(piece); }

void trim_pools_of(int device, Trim how) {
    uint64_t bytes = 0;
    {
        const std::unique_lock<std::shared_mutex> lock(memory().mutex);
        auto& all = pools().all;
        for (auto pool = all.begin(); pool != all.end();) {
            if ((*pool)->device == device) {
                bytes += trim_locked(**pool, how == Trim::to_nothing ? 0 : (*pool)->release_threshold);
            }
            const bool gone = !pool_locked((*pool)->handle) && (*pool)->blocks.reserved() == 0;
            pool = gone ? all.erase(pool) : pool + 1;
        }
    }
    release_on(device, bytes);
}

void trim_pools(Context& context) {
    forget_frees_by_streams();
    if (!something_unused.exchange(false)) return;
    trim_pools_of(device_of(context), Trim::to_threshold);
}

namespace {

// Runs body(Pool&) with the lock held.
template <typename Body>
CUresult with_pool(CUmemoryPool handle, Body&& body) {
    return entry([&]() -> CUresult {
        const std::unique_lock<std::shared_mutex> lock(memory().mutex);
        const std::shared_ptr<Pool> pool = pool_locked(handle);
        return pool ? body(*pool) : CUDA_ERROR_INVALID_VALUE;
    });
}

// Runs body() with the lock held, for a device that exists.
template <typename Body>
CUresult with_device(CUdevice device, Body&& body) {
    return entry([&]() -> CUresult {
        if (machine_index(device) < 0) return CUDA_ERROR_INVALID_DEVICE;
        const std::unique_lock<std::shared_mutex> lock(memory().mutex);
        return body();
    });
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

PLAIN_AND_PTSZ(cuMemAllocAsync, (CUdeviceptr * pointer, size_t bytes, CUstream stream),
               allocate_in_order(pointer, bytes, nullptr, stream, which))
PLAIN_AND_PTSZ(cuMemAllocFromPoolAsync, (CUdeviceptr * pointer, size_t bytes, CUmemoryPool pool, CUstream stream),
               allocate_in_order(pointer, bytes, &pool, stream, which))
PLAIN_AND_PTSZ(cuMemFreeAsync, (CUdeviceptr pointer, CUstream stream), free_in_order(pointer, stream, which))

DRIVER_API cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* properties) {
    return entry([&]() -> CUresult {
        if (!out || !properties || properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
        if (machine_index(properties->location.id) < 0) return CUDA_ERROR_INVALID_DEVICE;
        const std::unique_lock<std::shared_mutex> lock(memory().mutex);
        const std::shared_ptr<Pool> pool = make_pool_locked(properties->location.id);
        pool->max_bytes = properties->maxSize == 0 ? 0 : round_up(properties->maxSize, granularity);
        *out = pool->handle;
        return CUDA_SUCCESS;
    });
}

DRIVER_API cuMemPoolDestroy(CUmemoryPool handle) {
    int device = 0;
    const CUresult result = with_pool(handle, [&](Pool& pool) {
        if (pool.is_default) return CUDA_ERROR_INVALID_VALUE;
        device = pool.device;
        pools().alive.erase(handle);  // what was allocated from it stays until it is freed
        return CUDA_SUCCESS;
    });
    if (result != CUDA_SUCCESS) return result;
    return guarded([&] {
        trim_pools_of(device, Trim::to_threshold);
        return CUDA_SUCCESS;
    });
}

DRIVER_API cuMemPoolTrimTo(CUmemoryPool handle, size_t bytes_to_keep) {
    int device = 0;
    uint64_t bytes = 0;
    const CUresult result = with_pool(handle, [&](Pool& pool) {
        device = pool.device;
        bytes = trim_locked(pool, bytes_to_keep);
        return CUDA_SUCCESS;
    });
    return result != CUDA_SUCCESS ? result : guarded([&] {
        release_on(device, bytes);
        return CUDA_SUCCESS;
    });
}

DRIVER_API cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
    if (!value) return CUDA_ERROR_INVALID_VALUE;
    return with_pool(handle, [&](Pool& pool) {
        if (attribute != CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) return CUDA_ERROR_INVALID_VALUE;
        pool.release_threshold = *static_cast<const cuuint64_t*>(value);
        return CUDA_SUCCESS;
    });
}

DRIVER_API cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
    if (!value) return CUDA_ERROR_INVALID_VALUE;
    return with_pool(handle, [&](Pool& pool) {
        const auto say = [&](uint64_t number) {
            *static_cast<cuuint64_t*>(value) = number;
            return CUDA_SUCCESS;
        };
        switch (attribute) {
            case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
                return say(pool.release_threshold);
            case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
                return say(pool.blocks.reserved());
            case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
                return say(pool.used);
            default:
                return CUDA_ERROR_INVALID_VALUE;
        }
    });
}

DRIVER_API cuDeviceGetDefaultMemPool(CUmemoryPool* out, CUdevice device) {
    return with_device(device, [&] {
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        *out = default_pool_locked(device)->handle;
        return CUDA_SUCCESS;
    });
}

// The one that cuDeviceSetMemPool chose; there is no such call here.
DRIVER_API cuDeviceGetMemPool(CUmemoryPool* out, CUdevice device) { return cuDeviceGetDefaultMemPool(out, device); }
