#include "softgpu/memory.h"

#include <sys/mman.h>

#include <atomic>
#include <mutex>

namespace softgpu {

Memory& memory() {
    static Memory* const instance = new Memory;
    return *instance;
}

namespace {

// Memory outlives contexts, so its account is kept on a connection of its own for each device; never closed.
Engine* account_of(int device) {
    static std::mutex mutex;
    static std::map<int, Engine*>* const accounts = new std::map<int, Engine*>;
    const std::lock_guard<std::mutex> lock(mutex);
    Engine*& account = (*accounts)[device];
    if (!account) {
        std::string why;
        account = Engine::connect(machine_index(device), &why).release();
    }
    return account;
}

// What is left to do once the lock is released.
struct Returned {
    int device = 0;
    uint64_t accounted = 0;
};

// With the lock held. The entry is gone afterwards.
Returned remove_locked(Memory& all, CUdeviceptr base) {
    Allocations::Entry& entry = *all.allocations.starting_at(base);
    const Span pages{entry.base, entry.size};
    const Allocation gone = all.allocations.take(base);
    Returned returned{gone.device, gone.accounted};
    if (gone.kind == MemoryKind::pooled) {
        give_back(*gone.pool, pages);
    } else if (gone.kind == MemoryKind::opened) {
        // Its pages go with the last reference.
    } else if (gone.accounted != 0) {
        stop_sharing(all, pages.base);
        unmap_pages({pages.base, round_up(pages.size, granularity)});
    } else if (const auto blocks = all.small.find(gone.owner); blocks != all.small.end()) {
        blocks->second.give(pages);
        for (const Span& empty : blocks->second.trim(0)) {
            stop_sharing(all, empty.base);
            unmap_pages(empty);
            returned.accounted += empty.size;
        }
    }
    return returned;
}

CUresult allocate_small(const ContextRef& context, uint64_t bytes, Allocation allocation, CUdeviceptr* out) {
    Memory& all = memory();
    const auto take = [&] {
        *out = all.small[context.get()].take(bytes);
        return *out != 0 && all.allocations.insert(*out, bytes, allocation) != nullptr;
    };
    // One thread at a time brings a block: the driver never holds a second one that nobody needs.
    static std::mutex growing;
    const std::lock_guard<std::mutex> alone(growing);
    {
        const std::unique_lock<std::shared_mutex> lock(all.mutex);
        allocation.id = ++all.last_id;
        if (take()) return CUDA_SUCCESS;
    }
    if (!reserve_on(allocation.device, granularity)) return CUDA_ERROR_OUT_OF_MEMORY;
    const uint64_t block = map_pages(granularity);
    if (block == 0) {
        release_on(allocation.device, granularity);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    {
        const std::unique_lock<std::shared_mutex> lock(all.mutex);
        // A free may have made room meanwhile: then nothing would lie in the new block.
        if (!take()) {
            all.small[context.get()].add({block, granularity});
            return take() ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    unmap_pages({block, granularity});
    release_on(allocation.device, granularity);
    return CUDA_SUCCESS;
}

}  // namespace

bool reserve_on(int device, uint64_t bytes) {
    Engine* const account = account_of(device);
    if (!account) return false;
    if (account->reserve(bytes)) return true;
    // As the driver does: what pools hold unused makes room first.
    trim_pools_of(device, Trim::to_nothing);
    return account->reserve(bytes);
}

void release_on(int device, uint64_t bytes) {
    Engine* const account = account_of(device);
    if (account && bytes != 0) account->release(bytes);
}

CUresult memory_info(int device, MemoryInfo* out) {
    Engine* const account = account_of(device);
    if (!account) return CUDA_ERROR_UNKNOWN;
    *out = account->memory();
    return account->error() != 0 ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

uint64_t map_pages(uint64_t bytes) {
    // Aligned like the driver's: map more and cut both ends off.
    const uint64_t room = bytes + granularity;
    void* const mapped =
        room < bytes ? MAP_FAILED
                     : mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return 0;
    const uint64_t start = reinterpret_cast<uint64_t>(mapped);
    const uint64_t base = round_up(start, granularity);
    if (base > start) munmap(mapped, base - start);
    if (start + room > base + bytes) munmap(reinterpret_cast<void*>(base + bytes), start + room - base - bytes);
    return base;
}

void unmap_pages(Span pages) { munmap(reinterpret_cast<void*>(pages.base), pages.size); }

bool reachable(int device, uint64_t address, uint64_t bytes, bool for_writing) {
    if (bytes == 0) return true;
    Memory& all = memory();
    const auto allowed = [&](const Allocations::Entry& entry) {
        if (entry.value.kind != MemoryKind::mapping) return true;
        const auto access = entry.value.access.find(device);
        if (access == entry.value.access.end()) return false;
        return access->second == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ||
               (!for_writing && access->second == CU_MEM_ACCESS_FLAGS_PROT_READ);
    };
    return all.allocations.covered(address, bytes, allowed) || all.pool_blocks.covered(address, bytes);
}

namespace {
thread_local int holds = 0;
}

MemoryHold::MemoryHold() {
    if (holds++ == 0) memory().mutex.lock_shared();
}

MemoryHold::~MemoryHold() {
    if (--holds == 0) memory().mutex.unlock_shared();
}

uint64_t place_here(CUdeviceptr pointer) {
    const Allocations::Entry* const entry = memory().allocations.containing(pointer);
    if (!entry || !entry->value.pinned) return pointer;
    return entry->value.pinned->here.base + (pointer - entry->value.pinned->registered_at);
}

bool device_can_access(const Context& context, CUdeviceptr pointer, size_t bytes) {
    const MemoryHold hold;
    return reachable(device_of(context), pointer, bytes, false);
}

Allocation made_in(const ContextRef& context, MemoryKind kind) {
    Allocation allocation;
    allocation.kind = kind;
    allocation.device = device_of(*context);
    allocation.owner = context.get();
    allocation.owner_ref = context;
    allocation.context = handle_of(*context);
    return allocation;
}

CUresult allocate(const ContextRef& context, uint64_t bytes, MemoryKind kind, CUdeviceptr* out) {
    Allocation allocation = made_in(context, kind);
    if (kind == MemoryKind::device && bytes <= granularity / 2) return allocate_small(context, bytes, allocation, out);
    if (bytes > UINT64_MAX - granularity) return CUDA_ERROR_OUT_OF_MEMORY;
    const uint64_t whole = round_up(bytes, granularity);
    if (!reserve_on(allocation.device, whole)) return CUDA_ERROR_OUT_OF_MEMORY;
    const uint64_t base = map_pages(whole);
    if (base == 0) {
        release_on(allocation.device, whole);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    allocation.accounted = whole;
    Memory& all = memory();
    const std::unique_lock<std::shared_mutex> lock(all.mutex);
    allocation.id = ++all.last_id;
    all.allocations.insert(base, bytes, std::move(allocation));
    *out = base;
    return CUDA_SUCCESS;
}

namespace {

// With the lock held; null: nothing that may be freed starts there.
Allocations::Entry* freeable(Memory& all, CUdeviceptr pointer) {
    Allocations::Entry* const entry = all.allocations.starting_at(pointer);
    if (!entry || entry->value.on_host()) return nullptr;
    return entry->value.kind == MemoryKind::mapping || entry->value.kind == MemoryKind::opened ? nullptr : entry;
}

// Whether Memory::freed_by_streams may hold something; keeps synchronisation cheap.
std::atomic<bool> streams_have_freed{false};

}  // namespace

void forget_frees_by_streams() {
    if (!streams_have_freed.exchange(false)) return;
    const std::unique_lock<std::shared_mutex> lock(memory().mutex);
    memory().freed_by_streams.clear();
}

CUresult free_device_memory(CUdeviceptr pointer) {
    Memory& all = memory();
    ContextRef owner;
    bool streams_to_free = false;
    {
        const std::unique_lock<std::shared_mutex> lock(all.mutex);
        const Allocations::Entry* const entry = freeable(all, pointer);
        const bool was_freed = all.freed_by_streams.erase(pointer) != 0;
        if (!entry) return was_freed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
        owner = entry->value.owner_ref.lock();
        streams_to_free = entry->value.freed_in_a_stream;
    }
    // What is queued may still use it.
    if (owner) TRY(synchronize(*owner));
    if (streams_to_free) return CUDA_SUCCESS;
    Returned returned;
    {
        const std::unique_lock<std::shared_mutex> lock(all.mutex);
        if (!freeable(all, pointer)) return CUDA_ERROR_INVALID_VALUE;
        returned = remove_locked(all, pointer);
    }
    release_on(returned.device, returned.accounted);
    if (owner) trim_pools(*owner);
    return CUDA_SUCCESS;
}

CUresult free_device_memory_in_order(CUdeviceptr pointer, CUstream stream, DefaultStream which) {
    Memory& all = memory();
    uint64_t id;
    {
        const std::unique_lock<std::shared_mutex> lock(all.mutex);
        Allocations::Entry* const entry = freeable(all, pointer);
        if (!entry || entry->value.freed_in_a_stream) return CUDA_ERROR_INVALID_VALUE;
        id = entry->value.id;
        entry->value.freed_in_a_stream = true;
    }
    const auto find = [&all, pointer, id]() -> Allocations::Entry* {
        Allocations::Entry* const entry = all.allocations.starting_at(pointer);
        return entry && entry->value.id == id ? entry : nullptr;
    };
    Operation operation;
    operation.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
    operation.node_params = std::make_shared<const CUdeviceptr>(pointer);
    // Not an effect, which may not ask the device's process.
    operation.host_call = [&all, find, pointer] {
        Returned returned;
        {
            const std::unique_lock<std::shared_mutex> lock(all.mutex);
            if (!find()) return;
            returned = remove_locked(all, pointer);
            all.freed_by_streams.insert(pointer);
            streams_have_freed = true;
        }
        release_on(returned.device, returned.accounted);
    };
    OpId done = 0;
    const CUresult result = enqueue(stream, which, std::move(operation), &done);
    if (result == CUDA_SUCCESS && done != 0) return CUDA_SUCCESS;
    // Not freed, or not before the graph that it was captured into is launched.
    const std::unique_lock<std::shared_mutex> lock(all.mutex);
    if (Allocations::Entry* const entry = find()) entry->value.freed_in_a_stream = false;
    return result;
}

void release_memory_of(Context& context) {
    guarded([&] {
        Memory& all = memory();
        uint64_t accounted = 0;
        {
            const std::unique_lock<std::shared_mutex> lock(all.mutex);
            std::vector<uint64_t> bases;
            for (const auto& [base, entry] : all.allocations.entries()) {
                if (entry.value.kind != MemoryKind::mapping && entry.value.owner == &context) bases.push_back(base);
            }
            for (const uint64_t base : bases) {
                const Allocations::Entry& entry = *all.allocations.starting_at(base);
                if (entry.value.kind == MemoryKind::host) unmap_pages({base, round_up(entry.size, 4096)});
                accounted +=
                    entry.value.on_host() ? (all.allocations.take(base), 0) : remove_locked(all, base).accounted;
            }
            all.small.erase(&context);
        }
        release_on(device_of(context), accounted);
        release_arrays_of(context);
        trim_pools(context);
        return CUDA_SUCCESS;
    });
}

}  // namespace softgpu
