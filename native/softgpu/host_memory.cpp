// Host memory that the device can reach: allocated here, or the caller's own, registered.
#include <sys/mman.h>
#include <unistd.h>

#include <mutex>

#include "softgpu/memory.h"

namespace softgpu {
namespace {

constexpr unsigned alloc_flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
constexpr unsigned register_flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                    CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;

uint64_t page_bytes() {
    static const uint64_t bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    return bytes;
}

CUresult allocate_host(void** out, size_t bytes, unsigned flags) {
    return in_context([&](const ContextRef& context) -> CUresult {
        if (!out || (flags & ~alloc_flags) != 0) return CUDA_ERROR_INVALID_VALUE;
        TRY(unsafe_during_capture());
        if (bytes == 0) {  // accepted, unlike by cuMemAlloc: nothing is allocated, and null may be freed
            *out = nullptr;
            return CUDA_SUCCESS;
        }
        if (bytes > UINT64_MAX - page_bytes()) return CUDA_ERROR_OUT_OF_MEMORY;
        void* const pages =
            mmap(nullptr, round_up(bytes, page_bytes()), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pages == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
        Allocation allocation = made_in(context, MemoryKind::host);
        Memory& all = memory();
        const std::unique_lock<std::shared_mutex> lock(all.mutex);
        allocation.id = ++all.last_id;
        all.allocations.insert(reinterpret_cast<uint64_t>(pages), bytes, std::move(allocation));
        *out = pages;
        return CUDA_SUCCESS;
    });
}

// Takes host memory of one kind out of the table, after what is queued on it has run. An address in the middle, or of
// another kind of memory, is an invalid value; `if_unknown` is for memory that CUDA does not know.
CUresult remove_host(void* pointer, MemoryKind kind, CUresult if_unknown) {
    Memory& all = memory();
    const uint64_t base = reinterpret_cast<uint64_t>(pointer);
    ContextRef owner;
    const auto find = [&]() -> Allocations::Entry* {
        Allocations::Entry* const entry = all.allocations.starting_at(base);
        return entry && entry->value.kind == kind ? entry : nullptr;
    };
    const auto missing = [&] { return all.allocations.containing(base) ? CUDA_ERROR_INVALID_VALUE : if_unknown; };
    {
        const std::shared_lock<std::shared_mutex> lock(all.mutex);
        const Allocations::Entry* const entry = find();
        if (!entry) return missing();
        owner = entry->value.owner_ref.lock();
    }
    if (owner) TRY(synchronize(*owner));
    const std::unique_lock<std::shared_mutex> lock(all.mutex);
    const Allocations::Entry* const entry = find();
    if (!entry) return missing();
    if (kind == MemoryKind::host) unmap_pages({base, round_up(entry->size, page_bytes())});
    all.allocations.take(base);
    return CUDA_SUCCESS;
}

std::shared_ptr<PinnedPages> map_again(uint64_t base, uint64_t bytes) {
    const uint64_t start = base / page_bytes() * page_bytes();
    const uint64_t whole = round_up(base + bytes, page_bytes()) - start;
    // An old size of nothing asks for a second mapping, which the kernel gives of shared pages only.
    void* const here = mremap(reinterpret_cast<void*>(start), 0, whole, MREMAP_MAYMOVE);
    if (here == MAP_FAILED) return nullptr;
    return std::make_shared<PinnedPages>(start, Span{reinterpret_cast<uint64_t>(here), whole});
}

CUresult register_host(void* pointer, size_t bytes, unsigned flags) {
    return in_context([&](const ContextRef& context) -> CUresult {
        const uint64_t base = reinterpret_cast<uint64_t>(pointer);
        if (base == 0 || bytes == 0 || base + bytes < base || (flags & ~register_flags) != 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        TRY(unsafe_during_capture());
        Memory& all = memory();
        const std::unique_lock<std::shared_mutex> lock(all.mutex);
        if (all.allocations.overlaps(base, bytes)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
        if (!has_pages(base, bytes)) return CUDA_ERROR_INVALID_VALUE;
        Allocation allocation = made_in(context, MemoryKind::registered);
        allocation.id = ++all.last_id;
        allocation.pinned = map_again(base, bytes);
        all.allocations.insert(base, bytes, std::move(allocation));
        return CUDA_SUCCESS;
    });
}

}  // namespace

PinnedPages::~PinnedPages() { unmap_pages(here); }

bool has_pages(uint64_t address, uint64_t bytes) {
    const uint64_t start = address / page_bytes() * page_bytes();
    const uint64_t pages = (round_up(address + bytes, page_bytes()) - start) / page_bytes();
    std::vector<unsigned char> resident(pages);
    return mincore(reinterpret_cast<void*>(start), pages * page_bytes(), resident.data()) == 0;
}

}  // namespace softgpu

using namespace softgpu;

DRIVER_API cuMemHostAlloc(void** pointer, size_t bytes, unsigned flags) { return allocate_host(pointer, bytes, flags); }

DRIVER_API cuMemFreeHost(void* pointer) {
    return in_context([&](const ContextRef&) -> CUresult {
        if (!pointer) return CUDA_SUCCESS;
        TRY(unsafe_during_capture());
        return remove_host(pointer, MemoryKind::host, CUDA_ERROR_INVALID_VALUE);
    });
}

DRIVER_API cuMemHostRegister_v2(void* pointer, size_t bytes, unsigned flags) {
    return register_host(pointer, bytes, flags);
}

DRIVER_API cuMemHostUnregister(void* pointer) {
    return in_context([&](const ContextRef&) -> CUresult {
        if (!pointer) return CUDA_ERROR_INVALID_VALUE;
        TRY(unsafe_during_capture());
        return remove_host(pointer, MemoryKind::registered, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    });
}

DRIVER_API cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* pointer, unsigned flags) {
    return in_context([&](const ContextRef&) -> CUresult {
        if (!out || !pointer || flags != 0) return CUDA_ERROR_INVALID_VALUE;
        const uint64_t address = reinterpret_cast<uint64_t>(pointer);
        const std::shared_lock<std::shared_mutex> lock(memory().mutex);
        const Allocations::Entry* const entry = memory().allocations.containing(address);
        if (!entry || !entry->value.on_host()) return CUDA_ERROR_INVALID_VALUE;
        *out = address;
        return CUDA_SUCCESS;
    });
}
