#include "tenant/memory/borrowing.h"

#include <unistd.h>

#include <atomic>

#include "tenant/captures.h"
#include "tenant/context.h"
#include "tenant/context_end.h"
#include "tenant/fork.h"
#include "tenant/locked.h"
#include "tenant/memory/lending.h"
#include "tenant/memory/loan_socket.h"
#include "tenant/memory/table.h"

namespace tenant {

namespace {

struct Borrowed {
    LoanHandle handle;
    CUdeviceptr mapping;
    LoanTerms terms;
    CUcontext context;  // that opened it first
    uint32_t count;     // that it must be closed; 0: closed, and about to go
};

// Held for a moment only.
Lock lock{Rank::ipc_import};
MemoryTable<Borrowed> borrowed;  // by the address that the program knows
std::atomic<uint64_t> borrowed_count{0};

class BorrowedLocked : Locked {
 public:
    BorrowedLocked() : Locked(lock) {}
    ~BorrowedLocked() { borrowed_count.store(borrowed.count()); }
};

void before_fork() { lock.lock(); }
void after_fork() { lock.unlock(); }
// The mappings are the parent's.
void forget_in_child() {
    borrowed.abandon();
    borrowed_count.store(0);
    lock.renew();
}
LISTEN(AtFork, ForkStep::ipc_import, forget_in_child, before_fork, after_fork)

void unmap(const Borrowed& gone) {
    driver.cuMemUnmap(gone.mapping, gone.terms.whole_bytes);
    driver.cuMemAddressFree(gone.mapping, gone.terms.whole_bytes);
}

void wait_for(CUcontext context) {
    InContext there(context);
    if (there.is_there()) driver.cuCtxSynchronize();
}

// What was closed, once what is queued cannot use it any more. During a capture nobody may wait: then it is for later.
void unmap_closed() {
    if (capture_is_open()) return;
    for (;;) {
        Borrowed gone{};
        bool found = false;
        {
            BorrowedLocked locked;
            borrowed.remove_if([&](uint64_t, const Borrowed& one) {
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

// Opened once more, if it is open; 0: it is not.
CUdeviceptr open_again(const LoanHandle& handle) {
    BorrowedLocked locked;
    CUdeviceptr found = 0;
    borrowed.each([&](uint64_t address, Borrowed& one) {
        if (found || !one.handle.same_loan(handle)) return;
        ++one.count;
        found = address;
    });
    return found;
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

CUdeviceptr map_file(int file, const LoanTerms& terms, CUdevice device) {
    CUmemGenericAllocationHandle physical = 0;
    void* given = reinterpret_cast<void*>(static_cast<intptr_t>(file));
    if (driver.cuMemImportFromShareableHandle(&physical, given, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) !=
        CUDA_SUCCESS)
        return 0;
    CUdeviceptr address = 0;
    bool mapped = false, good = false;
    if (driver.cuMemAddressReserve(&address, terms.whole_bytes, kMemoryPage, 0, 0) != CUDA_SUCCESS) address = 0;
    if (address) mapped = driver.cuMemMap(address, terms.whole_bytes, 0, physical, 0) == CUDA_SUCCESS;
    if (mapped) good = let_in(address, terms.whole_bytes, device);
    // The mapping keeps the memory.
    driver.cuMemRelease(physical);
    if (good) return address;
    if (mapped) driver.cuMemUnmap(address, terms.whole_bytes);
    if (address) driver.cuMemAddressFree(address, terms.whole_bytes);
    return 0;
}

CUresult open_first(CUdeviceptr* out, const LoanHandle& handle, CUcontext context, CUdevice device) {
    LoanTerms terms{};
    int file = -1;
    Asked asked = ask_lender(handle.lender, handle.key, &terms, &file);
    // As the driver has it.
    if (asked == Asked::no_lender) return CUDA_ERROR_INVALID_HANDLE;
    if (asked == Asked::no_loan) return CUDA_ERROR_INVALID_VALUE;
    if (asked == Asked::silent) return CUDA_ERROR_MAP_FAILED;
    bool sound = terms.offset <= terms.whole_bytes && terms.bytes <= terms.whole_bytes - terms.offset;
    CUdeviceptr mapping = sound ? map_file(file, terms, device) : 0;
    close(file);
    if (!mapping) return CUDA_ERROR_MAP_FAILED;
    Borrowed one{handle, mapping, terms, context, 1};
    // Another thread may have been faster.
    if ((*out = open_again(handle))) {
        unmap(one);
        return CUDA_SUCCESS;
    }
    bool entered = false;
    {
        BorrowedLocked locked;
        entered = borrowed.enter(mapping + terms.offset, one) != nullptr;
    }
    if (!entered) {
        unmap(one);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = mapping + terms.offset;
    return CUDA_SUCCESS;
}

// As the driver: what a context has opened goes with it.
void forget_context(CUcontext context) {
    if (!borrowed_count.load()) return;
    for (;;) {
        Borrowed gone{};
        bool found = false;
        {
            BorrowedLocked locked;
            borrowed.remove_if([&](uint64_t, const Borrowed& one) {
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

bool borrow(CUdeviceptr* out, const CUipcMemHandle& given, unsigned int flags, CUresult* result) {
    LoanHandle handle;
    if (!read_loan(given, &handle)) return false;
    CUcontext context = nullptr;
    CUdevice device = 0;
    *result = CUDA_SUCCESS;
    if (!out || flags & ~static_cast<unsigned int>(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS))
        *result = CUDA_ERROR_INVALID_VALUE;
    else if ((*result = driver.cuCtxGetDevice(&device)) == CUDA_SUCCESS)
        *result = driver.cuCtxGetCurrent(&context);
    if (*result == CUDA_SUCCESS && is_own_loan(handle)) *result = CUDA_ERROR_INVALID_CONTEXT;
    if (*result == CUDA_SUCCESS && !mind_forks()) *result = CUDA_ERROR_MAP_FAILED;
    if (*result != CUDA_SUCCESS) return true;
    unmap_closed();
    if (!(*out = open_again(handle))) *result = open_first(out, handle, context, device);
    return true;
}

bool give_back_borrowed(CUdeviceptr address, CUresult* result) {
    if (!borrowed_count.load()) return false;
    *result = CUDA_SUCCESS;
    if (!current_context()) return false;
    {
        BorrowedLocked locked;
        Borrowed* one = borrowed.find(address);
        if (!one || !one->count) return false;
        --one->count;
    }
    unmap_closed();
    return true;
}

bool borrowed_range(CUdeviceptr pointer, MovableRange* out) {
    if (!borrowed_count.load(std::memory_order_relaxed)) return false;
    BorrowedLocked locked;
    bool found = false;
    borrowed.each([&](uint64_t address, const Borrowed& one) {
        if (found || pointer - address >= one.terms.bytes) return;
        *out = {address, one.terms.bytes, one.context, false};
        found = true;
    });
    return found;
}

}  // namespace tenant
