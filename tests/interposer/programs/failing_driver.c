// A driver that fails where a test says so, and else is the one that COTENANT_FAILING_DRIVER_OF names: it is linked
// with that one, so that a look-up in this library finds there what is not here. The name must not be libcuda.so.1:
// whoever opens that gets the interposer.
//
// It counts the calls of the thread that moves memory, and fails the one that faults.h names, or kills the process
// there. Of all threads it notes how much memory the GPU has given out, and how much of the host's is pinned.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>

#include "faults.h"

typedef int CUresult;
typedef uintptr_t U;
typedef CUresult (*Function)(U, U, U, U, U, U);

// All that eviction and return call, and what else takes or gives memory. Each has six arguments at most, none a
// floating-point number: so one signature passes them all on.
#define FUNCTIONS(CALL)        \
    CALL(cuCtxGetCurrent)      \
    CALL(cuCtxRecordEvent)     \
    CALL(cuCtxSetCurrent)      \
    CALL(cuCtxSynchronize)     \
    CALL(cuDeviceTotalMem_v2)  \
    CALL(cuEventCreate)        \
    CALL(cuEventDestroy_v2)    \
    CALL(cuEventQuery)         \
    CALL(cuEventRecord)        \
    CALL(cuEventSynchronize)   \
    CALL(cuMemAddressFree)     \
    CALL(cuMemAddressReserve)  \
    CALL(cuMemAllocAsync)      \
    CALL(cuMemAlloc_v2)        \
    CALL(cuMemCreate)          \
    CALL(cuMemFreeAsync)       \
    CALL(cuMemFree_v2)         \
    CALL(cuMemGetInfo_v2)      \
    CALL(cuMemHostRegister_v2) \
    CALL(cuMemHostUnregister)  \
    CALL(cuMemMap)             \
    CALL(cuMemRelease)         \
    CALL(cuMemSetAccess)       \
    CALL(cuMemUnmap)           \
    CALL(cuMemcpyDtoHAsync_v2) \
    CALL(cuMemcpyHtoDAsync_v2) \
    CALL(cuStreamCreate)       \
    CALL(cuStreamDestroy_v2)   \
    CALL(cuStreamQuery)        \
    CALL(cuStreamSynchronize)  \
    CALL(cuThreadExchangeStreamCaptureMode)

enum {
#define CALL(name) at_##name,
    FUNCTIONS(CALL)
#undef CALL
        count_of_functions
};
static const char* const names[] = {
#define CALL(name) #name,
    FUNCTIONS(CALL)
#undef CALL
};
static void* driver;
static Function real[count_of_functions];
static Faults* faults;

static void* real_driver(void) {
    const char* path = getenv("COTENANT_FAILING_DRIVER_OF");
    return path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

__attribute__((constructor)) static void begin(void) {
    faults = open_faults();
    driver = real_driver();
    if (!driver || !faults) _exit(70);
    for (int i = 0; i < count_of_functions; ++i) *(void**)&real[i] = dlsym(driver, names[i]);
}

static int is_mover(void) {
    static __thread int known;  // 1: no, 2: yes
    if (!known) {
        char name[16] = "";
        pthread_getname_np(pthread_self(), name, sizeof name);
        known = strcmp(name, "cotenant-mover") == 0 ? 2 : 1;
    }
    return known == 2;
}

static void raise_to(uint64_t* most, uint64_t seen) {
    if (__atomic_load_n(&faults->unwatched, __ATOMIC_SEQ_CST)) return;
    uint64_t before = __atomic_load_n(most, __ATOMIC_SEQ_CST);
    while (before < seen && !__atomic_compare_exchange_n(most, &before, seen, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
}

static void note_memory(void) {
    size_t free = 0, total = 0;
    if (real[at_cuMemGetInfo_v2]((U)&free, (U)&total, 0, 0, 0, 0) != 0) return;
    __atomic_store_n(&faults->used, total - free, __ATOMIC_SEQ_CST);
    raise_to(&faults->most_used, total - free);
}

static uint64_t* pinned_here(void) {
    uint32_t self = (uint32_t)getpid();
    for (int i = 0; i < FAULTS_JOBS; ++i) {
        uint32_t none = 0;
        if (__atomic_load_n(&faults->jobs[i].pid, __ATOMIC_SEQ_CST) == self ||
            __atomic_compare_exchange_n(&faults->jobs[i].pid, &none, self, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            return &faults->jobs[i].pinned;
    }
    _exit(71);
}

// The block that is registered, by its address: the driver is not told the size when it ends.
static struct {
    U address;
    uint64_t bytes;
} blocks[1024];
static pthread_mutex_t blocks_lock = PTHREAD_MUTEX_INITIALIZER;

static void note_pinned(U address, uint64_t bytes) {
    uint64_t sum = 0;
    pthread_mutex_lock(&blocks_lock);
    int at = 0;
    while (at < 1023 && blocks[at].address != (bytes ? 0 : address)) ++at;
    if (bytes) {
        blocks[at].address = address;
        blocks[at].bytes = bytes;
        __atomic_fetch_add(pinned_here(), bytes, __ATOMIC_SEQ_CST);
    } else {
        __atomic_fetch_sub(pinned_here(), blocks[at].bytes, __ATOMIC_SEQ_CST);
        blocks[at].address = blocks[at].bytes = 0;
    }
    pthread_mutex_unlock(&blocks_lock);
    for (int i = 0; i < FAULTS_JOBS; ++i) sum += __atomic_load_n(&faults->jobs[i].pinned, __ATOMIC_SEQ_CST);
    raise_to(&faults->most_pinned, sum);
}

static CUresult done(int which, const U* a) {
    if (which == at_cuEventQuery) __atomic_fetch_add(&faults->event_queries, 1, __ATOMIC_SEQ_CST);
    CUresult result = real[which](a[0], a[1], a[2], a[3], a[4], a[5]);
    if (result != 0) return result;
    switch (which) {
        case at_cuMemAlloc_v2:
        case at_cuMemAllocAsync:
        case at_cuMemCreate:
        case at_cuMemFree_v2:
        case at_cuMemFreeAsync:
        case at_cuMemGetInfo_v2:
        case at_cuMemRelease:
        case at_cuMemUnmap:
            note_memory();
            break;
        // Small ones are not for memory that moves: the gates', the program's.
        case at_cuMemHostRegister_v2:
            if (is_mover()) note_pinned(a[0], a[1]);
            break;
        case at_cuMemHostUnregister:
            if (is_mover()) note_pinned(a[0], 0);
            break;
        case at_cuStreamCreate:
            if (is_mover()) __atomic_fetch_add(&faults->streams, 1, __ATOMIC_SEQ_CST);
            break;
        case at_cuStreamDestroy_v2:
            if (is_mover()) __atomic_fetch_sub(&faults->streams, 1, __ATOMIC_SEQ_CST);
            break;
    }
    return result;
}

static void die(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

static CUresult called(int which, const U* a) {
    if (!is_mover() || !__atomic_load_n(&faults->armed, __ATOMIC_SEQ_CST) ||
        (faults->pid && faults->pid != (uint32_t)getpid()))
        return done(which, a);
    uint32_t call = __atomic_fetch_add(&faults->calls, 1, __ATOMIC_SEQ_CST);
    if (call < FAULTS_TRACE) faults->trace[call] = (uint8_t)which;
    if (faults->function != (uint32_t)which) return done(which, a);
    uint32_t number = ++faults->calls_of_function;
    if (faults->lasting ? number < faults->occurrence : number != faults->occurrence) return done(which, a);
    __atomic_fetch_add(&faults->fired, 1, __ATOMIC_SEQ_CST);
    if (faults->manner == kill_before) die();
    if (faults->manner != fail_instead) done(which, a);
    if (faults->manner == kill_after) die();
    return 999;  // CUDA_ERROR_UNKNOWN
}

#define CALL(name)                                \
    CUresult name(U a, U b, U c, U d, U e, U f) { \
        const U all[] = {a, b, c, d, e, f};       \
        return called(at_##name, all);            \
    }
FUNCTIONS(CALL)
#undef CALL

// The software GPU has no multicast objects. These take any memory that it knows, and say so.
CUresult cuMulticastBindAddr(U multicast, U offset, U address, U bytes, U flags) {
    U base = 0, whole = 0;
    Function range;
    (void)multicast, (void)offset, (void)bytes, (void)flags;
    *(void**)&range = dlsym(driver, "cuMemGetAddressRange_v2");
    return range((U)&base, (U)&whole, address, 0, 0, 0);
}
static CUresult bind_memory(U handle, U flags) {
    char properties[256];
    Function get;
    if (flags) return 1;
    *(void**)&get = dlsym(driver, "cuMemGetAllocationPropertiesFromHandle");
    return get((U)properties, handle, 0, 0, 0, 0);
}
CUresult cuMulticastBindMem(U multicast, U offset, U handle, U in_handle, U bytes, U flags) {
    (void)multicast, (void)offset, (void)in_handle, (void)bytes;
    return bind_memory(handle, flags);
}
// As a newer driver has it, which hands it out by the old name.
static CUresult bind_second_version(U multicast, U device, U offset, U handle, U in_handle, U bytes, U flags) {
    (void)multicast, (void)device, (void)offset, (void)in_handle, (void)bytes;
    return bind_memory(handle, flags);
}

// What is handed out by name must be what a look-up finds.
typedef CUresult (*GetProcAddress)(const char*, void**, int, uint64_t, int*);
static CUresult look_up(const char* function, const char* name, void** out, int version, uint64_t flags, int* status) {
    GetProcAddress get;
    *(void**)&get = dlsym(driver, function);
    if (version > 13000 && strcmp(name, "cuMulticastBindMem") == 0) {
        *out = (void*)bind_second_version;
        return 0;
    }
    CUresult result = get(name, out, version, flags, status);
    static Function const ours[] = {
#define CALL(name) name,
        FUNCTIONS(CALL)
#undef CALL
    };
    for (int i = 0; result == 0 && i < count_of_functions; ++i)
        if (*out == *(void**)&real[i]) memcpy(out, &ours[i], sizeof *out);
    return result;
}
CUresult cuGetProcAddress(const char* name, void** out, int version, uint64_t flags) {
    return look_up("cuGetProcAddress", name, out, version, flags, NULL);
}
CUresult cuGetProcAddress_v2(const char* name, void** out, int version, uint64_t flags, int* status) {
    return look_up("cuGetProcAddress_v2", name, out, version, flags, status);
}
