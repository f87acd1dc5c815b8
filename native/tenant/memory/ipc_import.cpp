#include "tenant/memory/ipc_import.h"

#include <unistd.h>

#include <atomic>

#include "tenant/captures.h"
#include "tenant/context.h"
#include "tenant/context_end.h"
#include "tenant/fork.h"
#include "tenant/green_contexts.h"
#include "tenant/locked.h"
#include "tenant/memory/ipc_export.h"
#include "tenant/memory/ipc_socket.h"
#include "tenant/memory/table.h"

namespace tenant {

namespace {

struct Import {
    IpcHandle handle;
    CUdeviceptr mapping;
    ExportedRange range;
    CUcontext context;  // that opened it first
    uint32_t count;     // that it must be closed; 0: closed, and about to go
};

// Held for a moment only.
Lock lock{Rank::ipc_import};
MemoryTable<Import> imports;  // by the address that the program knows
std::atomic<uint64_t> import_count{0};

class ImportsLocked : Locked {
 public:
    ImportsLocked() : Locked(lock) {}
    ~ImportsLocked() { import_count.store(imports.count()); }
};

void before_fork() { lock.lock(); }
void after_fork() { lock.unlock(); }
// The mappings are the parent's.
void forget_in_child() {
    imports.abandon();
    import_count.store(0);
    lock.renew();
}
LISTEN(AtFork, ForkStep::ipc_import, forget_in_child, before_fork, after_fork)

void unmap(const Import& gone) {
    driver.cuMemUnmap(gone.mapping, gone.range.whole_bytes);
    driver.cuMemAddressFree(gone.mapping, gone.range.whole_bytes);
}

void wait_for(CUcontext context) {
    InContext there(context);
    if (there.is_there()) driver.cuCtxSynchronize();
}

// Unmaps what was closed, once queued work cannot use it any more. During a capture no thread may wait: then it is done
// later.
void unmap_closed() {
    if (capture_is_open()) return;
    for (;;) {
        Import gone{};
        bool found = false;
        {
            ImportsLocked locked;
            imports.remove_if([&](uint64_t, const Import& one) {
                if (one.count || found) return false;
                gone = one;
                return found = true;
            });
        }
        if (!found) return;
        wait_for(gone.context);
        unmap(gone);
    }
}

// Opened once more, if it is open; 0: it is not. With the lock.
CUdeviceptr count_again(const IpcHandle& handle) {
    CUdeviceptr found = 0;
    imports.each([&](uint64_t address, Import& one) {
        if (found || !one.handle.same_export(handle)) return;
        ++one.count;
        found = address;
    });
    return found;
}

CUdeviceptr open_again(const IpcHandle& handle) {
    ImportsLocked locked;
    return count_again(handle);
}

// What another thread has entered since, where one was faster. 0: there is no space.
CUdeviceptr enter(const Import& one) {
    ImportsLocked locked;
    if (CUdeviceptr there = count_again(one.handle)) return there;
    CUdeviceptr address = one.mapping + one.range.offset;
    return imports.enter(address, one) ? address : 0;
}

// The device that opens it must get at it; its peers may, as with the driver's own.
bool let_in(CUdeviceptr address, uint64_t bytes, CUdevice device) {
    auto allow = [&](CUdevice who) {
        CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {who}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        return driver.cuMemSetAccess(address, bytes, &access, 1) == CUDA_SUCCESS;
    };
    if (!allow(device)) return false;
    int devices = 0, can = 0;
    if (driver.cuDeviceGetCount(&devices) != CUDA_SUCCESS) return true;
    for (CUdevice peer = 0; peer < devices; ++peer)
        if (peer != device && driver.cuDeviceCanAccessPeer(&can, peer, device) == CUDA_SUCCESS && can) allow(peer);
    return true;
}

CUdeviceptr map_file(int file, const ExportedRange& range, CUdevice device) {
    CUmemGenericAllocationHandle physical = 0;
    void* given = reinterpret_cast<void*>(static_cast<intptr_t>(file));
    if (driver.cuMemImportFromShareableHandle(&physical, given, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) !=
        CUDA_SUCCESS)
        return 0;
    CUdeviceptr address = 0;
    bool mapped = false, good = false;
    if (driver.cuMemAddressReserve(&address, range.whole_bytes, kMemoryPage, 0, 0) != CUDA_SUCCESS) address = 0;
    if (address) mapped = driver.cuMemMap(address, range.whole_bytes, 0, physical, 0) == CUDA_SUCCESS;
    if (mapped) good = let_in(address, range.whole_bytes, device);
    // The mapping keeps the memory.
    driver.cuMemRelease(physical);
    if (good) return address;
    if (mapped) driver.cuMemUnmap(address, range.whole_bytes);
    if (address) driver.cuMemAddressFree(address, range.whole_bytes);
    return 0;
}

CUresult open_first(CUdeviceptr* out, const IpcHandle& handle, CUcontext context, CUdevice device) {
    ExportedRange range{};
    int file = -1;
    Asked asked = ask_exporter(handle.exporter, handle.key, &range, &file);
    // As the driver has it.
    if (asked == Asked::no_exporter) return CUDA_ERROR_INVALID_HANDLE;
    if (asked == Asked::no_export) return CUDA_ERROR_INVALID_VALUE;
    if (asked == Asked::silent) return CUDA_ERROR_MAP_FAILED;
    bool sound = range.offset <= range.whole_bytes && range.bytes <= range.whole_bytes - range.offset;
    CUdeviceptr mapping = sound ? map_file(file, range, device) : 0;
    close(file);
    if (!mapping) return CUDA_ERROR_MAP_FAILED;
    Import one{handle, mapping, range, context, 1};
    *out = enter(one);
    if (*out != mapping + range.offset) unmap(one);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// As the driver: what a context has opened goes with it.
void forget_context(CUcontext context) {
    if (!import_count.load()) return;
    for (;;) {
        Import gone{};
        bool found = false;
        {
            ImportsLocked locked;
            imports.remove_if([&](uint64_t, const Import& one) {
                if (found || one.context != context) return false;
                gone = one;
                return found = true;
            });
        }
        if (!found) return;
        unmap(gone);
    }
}
LISTEN(AtContextEnd, ContextEndStep::ipc_import, forget_context)

}  // namespace

bool import_allocation(CUdeviceptr* out, const CUipcMemHandle& given, unsigned int flags, CUresult* result) {
    IpcHandle handle;
    if (!read_ipc_handle(given, &handle)) return false;
    CUcontext context = nullptr;
    CUdevice device = 0;
    *result = CUDA_SUCCESS;
    if (!out || flags & ~static_cast<unsigned int>(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS))
        *result = CUDA_ERROR_INVALID_VALUE;
    else if ((*result = driver.cuCtxGetDevice(&device)) == CUDA_SUCCESS)
        *result = driver.cuCtxGetCurrent(&context);
    // The mapping outlives a green context.
    context = owner_of(context);
    if (*result == CUDA_SUCCESS && is_own_export(handle)) *result = CUDA_ERROR_INVALID_CONTEXT;
    if (*result == CUDA_SUCCESS && !mind_forks()) *result = CUDA_ERROR_MAP_FAILED;
    if (*result != CUDA_SUCCESS) return true;
    unmap_closed();
    if (!(*out = open_again(handle))) *result = open_first(out, handle, context, device);
    return true;
}

bool close_import(CUdeviceptr address, CUresult* result) {
    if (!import_count.load()) return false;
    *result = CUDA_SUCCESS;
    if (!current_context()) return false;
    {
        ImportsLocked locked;
        Import* one = imports.find(address);
        if (!one || !one->count) return false;
        --one->count;
    }
    unmap_closed();
    return true;
}

bool imported_range(CUdeviceptr pointer, MovableRange* out) {
    if (!import_count.load(std::memory_order_relaxed)) return false;
    ImportsLocked locked;
    bool found = false;
    imports.each([&](uint64_t address, const Import& one) {
        if (found || pointer - address >= one.range.bytes) return;
        *out = {address, one.range.bytes, one.context, false};
        found = true;
    });
    return found;
}

}  // namespace tenant
