#include "softgpu/vmm.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <mutex>

namespace softgpu {

Physical::~Physical() {
    if (file >= 0) close(file);
    if (accounted_on >= 0) release_on(accounted_on, bytes);
}

int ordinal_of(uint32_t machine_place) {
    for (int device = 0; machine_index(device) >= 0; ++device) {
        if (static_cast<uint32_t>(machine_index(device)) == machine_place) return device;
    }
    return -1;
}

namespace {

using PhysicalRef = std::shared_ptr<Physical>;

// By handle; guarded by memory().mutex.
std::map<uint64_t, PhysicalRef>& physicals() {
    static auto* const instance = new std::map<uint64_t, PhysicalRef>;
    return *instance;
}

PhysicalRef physical_locked(CUmemGenericAllocationHandle handle) {
    const auto found = physicals().find(handle);
    return found == physicals().end() ? nullptr : found->second;
}

void publish(const PhysicalRef& physical, CUmemGenericAllocationHandle* out) {
    const std::unique_lock<std::shared_mutex> lock(memory().mutex);
    physical->handle = 0x700000000000 + 16 * ++memory().last_id;
    physicals()[physical->handle] = physical;
    *out = physical->handle;
}

bool on_host(const CUmemLocation& location) {
    return location.type == CU_MEM_LOCATION_TYPE_HOST || location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
           location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

CUresult check_properties(const CUmemAllocationProp* properties) {
    if (!properties || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
    if (on_host(properties->location)) return CUDA_SUCCESS;
    if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    return machine_index(properties->location.id) < 0 ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult create(CUmemGenericAllocationHandle* out, size_t bytes, const CUmemAllocationProp* properties,
                unsigned long long flags) {
    if (!out || flags != 0 || bytes == 0 || !is_multiple(bytes, granularity)) return CUDA_ERROR_INVALID_VALUE;
    TRY(check_properties(properties));
    auto physical = std::make_shared<Physical>();
    physical->bytes = bytes;
    physical->properties = *properties;
    const bool host = on_host(properties->location);
    if (!host) {
        if (!reserve_on(properties->location.id, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
        physical->accounted_on = properties->location.id;
    }
    physical->file = memfd_create("softgpu", MFD_CLOEXEC);
    const PhysicalNote note{
        PhysicalNote::expected_magic, bytes,
        host ? PhysicalNote::host_index : static_cast<uint32_t>(machine_index(properties->location.id)),
        static_cast<uint32_t>(properties->requestedHandleTypes)};
    if (physical->file < 0 || ftruncate(physical->file, static_cast<off_t>(bytes + PhysicalNote::room)) != 0 ||
        pwrite(physical->file, &note, sizeof note, static_cast<off_t>(bytes)) != sizeof note) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    publish(physical, out);
    return CUDA_SUCCESS;
}

CUresult import(CUmemGenericAllocationHandle* out, int file) {
    struct stat status;
    PhysicalNote note;
    if (fstat(file, &status) != 0 || status.st_size <= static_cast<off_t>(PhysicalNote::room)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const off_t place = status.st_size - static_cast<off_t>(PhysicalNote::room);
    if (pread(file, &note, sizeof note, place) != sizeof note || note.magic != PhysicalNote::expected_magic ||
        note.bytes != static_cast<uint64_t>(place)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    auto physical = std::make_shared<Physical>();
    physical->bytes = note.bytes;
    physical->properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    physical->properties.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(note.handle_types);
    physical->properties.location = {CU_MEM_LOCATION_TYPE_HOST, {0}};
    if (note.machine_index != PhysicalNote::host_index) {
        const int device = ordinal_of(note.machine_index);
        if (device < 0) return CUDA_ERROR_INVALID_DEVICE;
        physical->properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
    }
    physical->file = fcntl(file, F_DUPFD_CLOEXEC, 0);
    if (physical->file < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    publish(physical, out);
    return CUDA_SUCCESS;
}

// Nobody else may come to use the addresses in between, so they are covered again and never unmapped.
bool cover_with_nothing(Span pages) {
    return mmap(reinterpret_cast<void*>(pages.base), pages.size, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

constexpr int reserving = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

bool reserve_exactly(Span pages) {
    void* const there =
        mmap(reinterpret_cast<void*>(pages.base), pages.size, PROT_NONE, reserving | MAP_FIXED_NOREPLACE, -1, 0);
    if (there == MAP_FAILED) return false;
    if (reinterpret_cast<uint64_t>(there) == pages.base) return true;
    munmap(there, pages.size);  // a kernel that takes the wish for a hint
    return false;
}

// Aligned; 0 where the kernel refuses.
uint64_t reserve_anywhere(uint64_t bytes, uint64_t alignment) {
    const uint64_t room = bytes + alignment;
    if (room < bytes) return 0;
    void* const mapped = mmap(nullptr, room, PROT_NONE, reserving, -1, 0);
    if (mapped == MAP_FAILED) return 0;
    const uint64_t start = reinterpret_cast<uint64_t>(mapped), base = round_up(start, alignment);
    if (base > start) munmap(mapped, base - start);
    if (start + room > base + bytes) unmap_pages({base + bytes, start + room - base - bytes});
    return base;
}

CUresult reserve_addresses(CUdeviceptr* out, size_t bytes, size_t alignment, CUdeviceptr wish,
                           unsigned long long flags) {
    if (!out || bytes == 0 || flags != 0 || !is_multiple(bytes, granularity)) return CUDA_ERROR_INVALID_VALUE;
    if ((alignment & (alignment - 1)) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (alignment < granularity) alignment = granularity;
    Memory& all = memory();
    const std::unique_lock<std::shared_mutex> lock(all.mutex);
    uint64_t base = 0;
    if (wish != 0 && is_multiple(wish, alignment) && reserve_exactly({wish, bytes})) base = wish;
    if (base == 0) base = reserve_anywhere(bytes, alignment);
    if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    all.reservations.insert(base, bytes, ++all.last_id);
    *out = base;
    return CUDA_SUCCESS;
}

CUresult free_addresses(CUdeviceptr base, size_t bytes) {
    Memory& all = memory();
    const std::unique_lock<std::shared_mutex> lock(all.mutex);
    const auto* const reservation = all.reservations.starting_at(base);
    if (!reservation || reservation->size != bytes) return CUDA_ERROR_INVALID_VALUE;
    if (all.allocations.overlaps(base, bytes)) return CUDA_ERROR_INVALID_VALUE;  // something is still mapped
    all.reservations.take(base);
    unmap_pages({base, bytes});
    return CUDA_SUCCESS;
}

CUresult map(CUdeviceptr base, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
             unsigned long long flags) {
    if (bytes == 0 || flags != 0 || !is_multiple(base, granularity)) return CUDA_ERROR_INVALID_VALUE;
    Memory& all = memory();
    const std::unique_lock<std::shared_mutex> lock(all.mutex);
    const PhysicalRef physical = physical_locked(handle);
    if (!physical) return CUDA_ERROR_INVALID_VALUE;
    if (offset != 0 || bytes != physical->bytes) return CUDA_ERROR_NOT_SUPPORTED;  // all of it or nothing
    const auto* const reservation = all.reservations.containing(base);
    if (!reservation) return CUDA_ERROR_INVALID_VALUE;
    if (reservation->end() - base < bytes) return CUDA_ERROR_NOT_SUPPORTED;  // the driver asks for its beginning only
    if (all.allocations.overlaps(base, bytes)) return CUDA_ERROR_INVALID_VALUE;
    if (mmap(reinterpret_cast<void*>(base), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED,
             physical->file, 0) == MAP_FAILED) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    Allocation mapping;
    mapping.kind = MemoryKind::mapping;
    mapping.device = on_host(physical->properties.location) ? CU_DEVICE_CPU : physical->properties.location.id;
    mapping.id = ++all.last_id;
    mapping.physical = physical;
    all.allocations.insert(base, bytes, std::move(mapping));
    return CUDA_SUCCESS;
}

// With the lock held: the mappings that make up [base, base + bytes), all of them whole; empty where they do not.
std::vector<uint64_t> whole_mappings(Memory& all, uint64_t base, uint64_t bytes) {
    std::vector<uint64_t> found;
    if (base + bytes < base) return found;
    for (uint64_t at = base; at < base + bytes;) {
        const Allocations::Entry* const entry = all.allocations.starting_at(at);
        if (!entry || entry->value.kind != MemoryKind::mapping || entry->end() > base + bytes) return {};
        found.push_back(at);
        at = entry->end();
    }
    return found;
}

// With the lock held: the mappings that lie in [base, base + bytes); false where one is there only in part, or
// something else is.
bool mappings_within(Memory& all, uint64_t base, uint64_t bytes, std::vector<uint64_t>* found) {
    const Allocations::Entry* const first = all.allocations.containing(base);
    if (first && first->base < base) return false;
    const auto& entries = all.allocations.entries();
    for (auto entry = entries.lower_bound(base); entry != entries.end() && entry->first - base < bytes; ++entry) {
        if (entry->second.value.kind != MemoryKind::mapping || entry->second.end() - base > bytes) return false;
        found->push_back(entry->first);
    }
    return true;
}

// Begins in a reservation, and ends anywhere: what is not mapped may be unmapped like the rest, but no part of a
// mapping.
CUresult unmap(CUdeviceptr base, size_t bytes) {
    if (bytes == 0 || !is_multiple(base, granularity)) return CUDA_ERROR_INVALID_VALUE;
    std::vector<Allocation> gone;  // outlives the lock: releasing physical memory asks the device's process
    Memory& all = memory();
    const std::unique_lock<std::shared_mutex> lock(all.mutex);
    if (!all.reservations.containing(base)) return CUDA_ERROR_INVALID_VALUE;
    std::vector<uint64_t> mappings;
    if (!mappings_within(all, base, bytes, &mappings)) return CUDA_ERROR_INVALID_VALUE;
    for (const uint64_t mapping : mappings) {
        if (!cover_with_nothing({mapping, all.allocations.starting_at(mapping)->size})) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        gone.push_back(all.allocations.take(mapping));
    }
    return CUDA_SUCCESS;
}

CUresult set_access(CUdeviceptr base, size_t bytes, const CUmemAccessDesc* descriptions, size_t count) {
    if (!descriptions || count == 0 || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; ++i) {
        const CUmemLocation& location = descriptions[i].location;
        const CUmemAccess_flags flags = descriptions[i].flags;
        if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
            flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (on_host(location)) continue;
        if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
        if (machine_index(location.id) < 0) return CUDA_ERROR_INVALID_VALUE;
    }
    Memory& all = memory();
    const std::unique_lock<std::shared_mutex> lock(all.mutex);
    const std::vector<uint64_t> mappings = whole_mappings(all, base, bytes);
    if (mappings.empty()) return CUDA_ERROR_INVALID_VALUE;
    for (const uint64_t mapping : mappings) {
        for (size_t i = 0; i < count; ++i) {
            const CUmemLocation& location = descriptions[i].location;
            const int device = on_host(location) ? CU_DEVICE_CPU : location.id;
            all.allocations.starting_at(mapping)->value.access[device] = descriptions[i].flags;
        }
    }
    return CUDA_SUCCESS;
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

ENTRY(cuMemAddressReserve,
      (CUdeviceptr * out, size_t bytes, size_t alignment, CUdeviceptr wish, unsigned long long flags),
      reserve_addresses(out, bytes, alignment, wish, flags))

ENTRY(cuMemAddressFree, (CUdeviceptr base, size_t bytes), free_addresses(base, bytes))

ENTRY(cuMemCreate,
      (CUmemGenericAllocationHandle * out, size_t bytes, const CUmemAllocationProp* properties,
       unsigned long long flags),
      create(out, bytes, properties, flags))

DRIVER_API cuMemRelease(CUmemGenericAllocationHandle handle) {
    return entry([&]() -> CUresult {
        PhysicalRef physical;  // outlives the lock
        const std::unique_lock<std::shared_mutex> lock(memory().mutex);
        physical = physical_locked(handle);
        if (!physical) return CUDA_ERROR_INVALID_VALUE;
        if (--physical->handle_count == 0) physicals().erase(handle);
        return CUDA_SUCCESS;
    });
}

ENTRY(cuMemMap,
      (CUdeviceptr base, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags),
      map(base, bytes, offset, handle, flags))

ENTRY(cuMemUnmap, (CUdeviceptr base, size_t bytes), unmap(base, bytes))

ENTRY(cuMemSetAccess, (CUdeviceptr base, size_t bytes, const CUmemAccessDesc* descriptions, size_t count),
      set_access(base, bytes, descriptions, count))

DRIVER_API cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* out, CUmemGenericAllocationHandle handle) {
    return entry([&]() -> CUresult {
        const std::shared_lock<std::shared_mutex> lock(memory().mutex);
        const PhysicalRef physical = physical_locked(handle);
        if (!out || !physical) return CUDA_ERROR_INVALID_VALUE;
        *out = physical->properties;
        return CUDA_SUCCESS;
    });
}

DRIVER_API cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* out, void* address) {
    return entry([&]() -> CUresult {
        const std::unique_lock<std::shared_mutex> lock(memory().mutex);
        const Allocations::Entry* const mapping = memory().allocations.containing(reinterpret_cast<uint64_t>(address));
        if (!out || !mapping || mapping->value.kind != MemoryKind::mapping) return CUDA_ERROR_INVALID_VALUE;
        const PhysicalRef& physical = mapping->value.physical;
        ++physical->handle_count;
        physicals()[physical->handle] = physical;
        *out = physical->handle;
        return CUDA_SUCCESS;
    });
}

DRIVER_API cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                                        unsigned long long flags) {
    return entry([&]() -> CUresult {
        if (!out || flags != 0) return CUDA_ERROR_INVALID_VALUE;
        if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
        const std::shared_lock<std::shared_mutex> lock(memory().mutex);
        const PhysicalRef physical = physical_locked(handle);
        if (!physical || (physical->properties.requestedHandleTypes & type) == 0) return CUDA_ERROR_INVALID_VALUE;
        const int file = fcntl(physical->file, F_DUPFD_CLOEXEC, 0);
        if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
        *static_cast<int*>(out) = file;
        return CUDA_SUCCESS;
    });
}

DRIVER_API cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* out, void* handle,
                                          CUmemAllocationHandleType type) {
    return entry([&]() -> CUresult {
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
        return import(out, static_cast<int>(reinterpret_cast<intptr_t>(handle)));
    });
}
