// Memory of cuMemAlloc for several processes: cuIpcGetMemHandle and its relatives.
//
// The pages that an allocation lies in become those of a memory file when it is first shared, at the same addresses and
// with their contents. Who opens the handle finds the file with the process that made it, so it has to be alive then.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <mutex>

#include "softgpu/vmm.h"

namespace softgpu {
namespace {

constexpr uint64_t handle_magic = 0x3863706967736673;
constexpr uint64_t note_room = 4096;

struct Handle {
    uint64_t magic;
    uint64_t key;  // by chance, one for each file
    uint64_t allocation;
    uint64_t offset, bytes;
    uint32_t pid;
    int32_t file;
    uint32_t machine_index;
    uint32_t unused[3];
};
static_assert(sizeof(Handle) == sizeof(CUipcMemHandle));

// The last page of the file.
struct Note {
    uint64_t magic;
    uint64_t key;
};

Span pages_of(const Allocations::Entry& entry) {
    if (entry.value.accounted != 0) return {entry.base, round_up(entry.size, granularity)};
    return {entry.base / granularity * granularity, granularity};
}

// Untouched memory stays so: what is all zero is not written.
bool copy_to(int file, Span pages) {
    constexpr uint64_t step = 4096;
    static const char zeros[step] = {};
    for (uint64_t at = 0; at < pages.size; at += step) {
        const void* const from = reinterpret_cast<const void*>(pages.base + at);
        if (std::memcmp(from, zeros, step) == 0) continue;
        if (pwrite(file, from, step, static_cast<off_t>(at)) != static_cast<ssize_t>(step)) return false;
    }
    return true;
}

// With the lock held; nobody uses the pages meanwhile.
CUresult share(Memory& all, Span pages) {
    if (all.shared.count(pages.base) != 0) return CUDA_SUCCESS;
    Note note{handle_magic, 0};
    if (getrandom(&note.key, sizeof note.key, 0) != sizeof note.key) return CUDA_ERROR_OPERATING_SYSTEM;
    const int file = memfd_create("softgpu-ipc", MFD_CLOEXEC);
    if (file < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    if (ftruncate(file, static_cast<off_t>(pages.size + note_room)) != 0 || !copy_to(file, pages) ||
        pwrite(file, &note, sizeof note, static_cast<off_t>(pages.size)) != sizeof note ||
        mmap(reinterpret_cast<void*>(pages.base), pages.size, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_NORESERVE | MAP_FIXED, file, 0) == MAP_FAILED) {
        close(file);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    all.shared[pages.base] = {file, note.key};
    return CUDA_SUCCESS;
}

CUresult get(CUipcMemHandle* out, CUdeviceptr pointer) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    Memory& all = memory();
    const std::unique_lock<std::shared_mutex> lock(all.mutex);
    const Allocations::Entry* const entry = all.allocations.containing(pointer);
    if (!entry || entry->value.kind != MemoryKind::device) return CUDA_ERROR_INVALID_VALUE;
    const Span pages = pages_of(*entry);
    TRY(share(all, pages));
    const SharedPages& shared = all.shared[pages.base];
    Handle handle{};
    handle.magic = handle_magic;
    handle.key = shared.key;
    handle.allocation = entry->value.id;
    handle.offset = entry->base - pages.base;
    handle.bytes = entry->size;
    handle.pid = static_cast<uint32_t>(getpid());
    handle.file = shared.file;
    handle.machine_index = static_cast<uint32_t>(machine_index(entry->value.device));
    std::memcpy(out, &handle, sizeof handle);
    return CUDA_SUCCESS;
}

// The other process's file, or -1: it is gone, or this is not its.
int find_file(const Handle& handle, uint64_t* bytes) {
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%u/fd/%d", handle.pid, handle.file);
    const int file = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) return -1;
    struct stat status;
    Note note{};
    if (fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > static_cast<off_t>(note_room)) {
        *bytes = static_cast<uint64_t>(status.st_size) - note_room;
        if (pread(file, &note, sizeof note, static_cast<off_t>(*bytes)) == sizeof note && note.magic == handle_magic &&
            note.key == handle.key && handle.offset <= *bytes && handle.bytes <= *bytes - handle.offset) {
            return file;
        }
    }
    close(file);
    return -1;
}

CUresult map_file(const Handle& handle, OpenedPages* out) {
    uint64_t bytes = 0;
    const int file = find_file(handle, &bytes);
    if (file < 0)
        return kill(static_cast<pid_t>(handle.pid), 0) == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    const uint64_t base = map_pages(bytes);
    const bool mapped = base != 0 && mmap(reinterpret_cast<void*>(base), bytes, PROT_READ | PROT_WRITE,
                                          MAP_SHARED | MAP_NORESERVE | MAP_FIXED, file, 0) != MAP_FAILED;
    close(file);
    if (!mapped) {
        if (base != 0) unmap_pages({base, bytes});
        return CUDA_ERROR_MAP_FAILED;
    }
    out->here = {base, bytes};
    return CUDA_SUCCESS;
}

// With the lock held; null: no context of this process has it open.
Allocations::Entry* opened(Memory& all, const Handle& handle) {
    for (auto& [base, entry] : all.allocations.entries()) {
        const auto& pages = entry.value.opened;
        if (pages && pages->key == handle.key && pages->allocation == handle.allocation) return &entry;
    }
    return nullptr;
}

CUresult open_handle(const ContextRef& context, CUdeviceptr* out, const CUipcMemHandle& given, unsigned flags) {
    Handle handle;
    std::memcpy(&handle, &given, sizeof handle);
    if (!out || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
    if (handle.magic != handle_magic) return CUDA_ERROR_INVALID_VALUE;
    if (handle.pid == static_cast<uint32_t>(getpid())) return CUDA_ERROR_INVALID_CONTEXT;
    const int device = device_of(*context);
    if (ordinal_of(handle.machine_index) != device) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    Memory& all = memory();
    const std::unique_lock<std::shared_mutex> lock(all.mutex);
    if (Allocations::Entry* const there = opened(all, handle)) {
        // One context a device may have what another process has there.
        if (there->value.owner != context.get()) return CUDA_ERROR_ALREADY_MAPPED;
        ++there->value.opened->count;
        *out = there->base;
        return CUDA_SUCCESS;
    }
    auto pages = std::make_shared<OpenedPages>();
    TRY(map_file(handle, pages.get()));
    pages->key = handle.key;
    pages->allocation = handle.allocation;
    Allocation allocation = made_in(context, MemoryKind::opened);
    allocation.id = ++all.last_id;
    allocation.opened = pages;
    *out = pages->here.base + handle.offset;
    all.allocations.insert(*out, handle.bytes, std::move(allocation));
    return CUDA_SUCCESS;
}

CUresult close_opened(CUdeviceptr pointer) {
    Memory& all = memory();
    Allocation gone;
    ContextRef owner;
    {
        const std::unique_lock<std::shared_mutex> lock(all.mutex);
        Allocations::Entry* const entry = all.allocations.starting_at(pointer);
        if (!entry || entry->value.kind != MemoryKind::opened) return CUDA_ERROR_INVALID_VALUE;
        if (entry->value.opened->count > 1) {
            --entry->value.opened->count;
            return CUDA_SUCCESS;
        }
        owner = entry->value.owner_ref.lock();
    }
    // What is queued may still use it.
    if (owner) TRY(synchronize(*owner));
    const std::unique_lock<std::shared_mutex> lock(all.mutex);
    Allocations::Entry* const entry = all.allocations.starting_at(pointer);
    if (!entry || entry->value.kind != MemoryKind::opened) return CUDA_ERROR_INVALID_VALUE;
    if (--entry->value.opened->count == 0) all.allocations.take(pointer);
    return CUDA_SUCCESS;
}

}  // namespace

OpenedPages::~OpenedPages() {
    if (here.size != 0) unmap_pages(here);
}

void stop_sharing(Memory& all, uint64_t base) {
    const auto found = all.shared.find(base);
    if (found == all.shared.end()) return;
    close(found->second.file);
    all.shared.erase(found);
}

}  // namespace softgpu

using namespace softgpu;

DRIVER_API cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr pointer) {
    return in_context([&](const ContextRef&) { return get(handle, pointer); });
}

DRIVER_API cuIpcOpenMemHandle_v2(CUdeviceptr* out, CUipcMemHandle handle, unsigned flags) {
    return in_context([&](const ContextRef& context) { return open_handle(context, out, handle, flags); });
}

DRIVER_API cuIpcCloseMemHandle(CUdeviceptr pointer) {
    return in_context([&](const ContextRef&) { return close_opened(pointer); });
}
