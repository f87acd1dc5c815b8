// A job with memory of every kind that can move, each piece with contents of its own; it does what stdin says. It
// starts in milliseconds, so that it can be killed often.
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "faults.h"

#define PAGE ((size_t)2 << 20)
#define MOST_PIECES 4096

typedef struct {
    CUdeviceptr pointer;
    size_t bytes;
    uint64_t seed;
    enum Way { by_alloc, in_order, by_mapping } way;
} Piece;

static Piece pieces[MOST_PIECES];
static int count;
static uint64_t last_seed;
static CUcontext context;
static CUfunction fill_kernel;
static Faults* faults;

static int failed(CUresult result) {
    if (result != CUDA_SUCCESS) fprintf(stderr, "error %d\n", (int)result);
    return result != CUDA_SUCCESS;
}

static size_t in_pages(size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

static void give_mapped(CUdeviceptr base, size_t mapped, size_t bytes) {
    for (size_t at = 0; at < mapped; at += PAGE) cuMemUnmap(base + at, PAGE);
    cuMemAddressFree(base, bytes);
}

// As PyTorch's expandable segments do it: several handles side by side, released once mapped.
static CUresult take_mapped(CUdeviceptr* out, size_t bytes) {
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemAccessDesc access = {.location = properties.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = cuMemAddressReserve(out, bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS) return result;
    size_t mapped = 0;
    for (; mapped < bytes; mapped += PAGE) {
        CUmemGenericAllocationHandle handle;
        result = cuMemCreate(&handle, PAGE, &properties, 0);
        if (result != CUDA_SUCCESS) break;
        result = cuMemMap(*out + mapped, PAGE, 0, handle, 0);
        cuMemRelease(handle);
        if (result != CUDA_SUCCESS) break;
    }
    if (result == CUDA_SUCCESS) result = cuMemSetAccess(*out, bytes, &access, 1);
    if (result != CUDA_SUCCESS) give_mapped(*out, mapped, bytes);
    return result;
}

static uint64_t* contents(const Piece* piece) {
    size_t words = piece->bytes / 8 + 1;
    uint64_t* all = malloc(words * 8);
    for (size_t i = 0; i < words; ++i) all[i] = (piece->seed << 40) + i * 0x9e3779b97f4a7c15u;
    return all;
}

static CUresult fill(Piece* piece) {
    piece->seed = ++last_seed;
    uint64_t* all = contents(piece);
    CUresult result = cuMemcpyHtoD(piece->pointer, all, piece->bytes);
    free(all);
    return result;
}

static CUresult add(enum Way way, size_t bytes) {
    Piece* piece = &pieces[count];
    *piece = (Piece){0, bytes, 0, way};
    CUresult result = way == by_alloc   ? cuMemAlloc(&piece->pointer, bytes)
                      : way == in_order ? cuMemAllocAsync(&piece->pointer, bytes, 0)
                                        : take_mapped(&piece->pointer, in_pages(bytes));
    if (result != CUDA_SUCCESS) return result;
    ++count;
    return fill(piece);
}

static CUresult give(int index) {
    Piece piece = pieces[index];
    pieces[index] = pieces[--count];
    if (piece.way == by_alloc) return cuMemFree(piece.pointer);
    if (piece.way == in_order) return cuMemFreeAsync(piece.pointer, 0);
    CUresult result = cuCtxSynchronize();
    give_mapped(piece.pointer, in_pages(piece.bytes), in_pages(piece.bytes));
    return result;
}

static int is_whole(void) {
    int whole = 1;
    for (int i = 0; whole && i < count; ++i) {
        uint64_t* expected = contents(&pieces[i]);
        char* there = malloc(pieces[i].bytes);
        whole = !failed(cuMemcpyDtoH(there, pieces[i].pointer, pieces[i].bytes)) &&
                memcmp(there, expected, pieces[i].bytes) == 0;
        free(there);
        free(expected);
    }
    return whole;
}

// A kernel writes all of the scratch memory, and something is allocated and freed.
static int runs(CUdeviceptr scratch, float value) {
    uint64_t n = PAGE / sizeof value;
    void* parameters[] = {&scratch, &value, &n};
    float* there = malloc(PAGE);
    CUdeviceptr small = 0;
    int good = !failed(cuMemAlloc(&small, 700)) && !failed(cuMemFree(small)) &&
               !failed(cuLaunchKernel(fill_kernel, 64, 1, 1, 64, 1, 1, 0, 0, parameters, 0)) &&
               !failed(cuMemcpyDtoH(there, scratch, PAGE));
    for (size_t i = 0; good && i < n; ++i) good = there[i] == value;
    free(there);
    return good;
}

// Uses all memory while it is on its way: begins as soon as the thread that moves it has called the driver.
static void* attend(void* unused) {
    CUdeviceptr scratch = 0;
    int broken = failed(cuCtxSetCurrent(context)) || failed(cuMemAlloc(&scratch, PAGE));
    for (;;) {
        uint32_t round = __atomic_load_n(&faults->checks, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&faults->wanted_checks, __ATOMIC_SEQ_CST) == round ||
            (round && !__atomic_load_n(&faults->calls, __ATOMIC_SEQ_CST))) {
            nanosleep(&(struct timespec){0, 200000}, NULL);
            continue;
        }
        if (broken || !runs(scratch, (float)round) || !is_whole())
            __atomic_fetch_add(&faults->torn, 1, __ATOMIC_SEQ_CST);
        __atomic_store_n(&faults->checks, round + 1, __ATOMIC_SEQ_CST);
    }
    return unused;
}

// Memory joins a multicast object: the failing driver takes any, and binds nothing.
static CUresult bind_to_multicast(Piece* piece, char way) {
    const CUmemGenericAllocationHandle multicast = 77;
    CUmemGenericAllocationHandle handle = 0;
    const unsigned long long flags = way == 'n';  // with one it is refused
    if (way == 'a') return cuMulticastBindAddr(multicast, PAGE, piece->pointer, in_pages(piece->bytes), 0);
    CUresult result = cuMemRetainAllocationHandle(&handle, (void*)piece->pointer);
    if (result == CUDA_SUCCESS) result = cuMulticastBindMem(multicast, 0, handle, 0, PAGE, flags);
    if (handle) cuMemRelease(handle);
    return result;
}

// As a program for a newer driver does it: by a version that the interposer does not know.
static CUresult bind_by_newer_version(void) {
    typedef CUresult (*Bind)(CUmemGenericAllocationHandle, CUdevice, size_t, CUmemGenericAllocationHandle, size_t,
                             size_t, unsigned long long);
    Bind bind = NULL;
    CUdriverProcAddressQueryResult status;
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUresult result = cuGetProcAddress("cuMulticastBindMem", (void**)&bind, 13040, 0, &status);
    if (result == CUDA_SUCCESS) result = cuMemCreate(&handle, PAGE, &properties, 0);
    if (result == CUDA_SUCCESS) result = bind(77, 0, 0, handle, 0, PAGE, 0);
    if (handle) cuMemRelease(handle);
    return result;
}

// Whoever may already may again: nothing changes.
static CUresult set_access(const Piece* piece) {
    CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    return cuMemSetAccess(piece->pointer, in_pages(piece->bytes), &access, 1);
}

// The default stream stands still until this is 1.
static volatile uint32_t* word;
static CUresult hold(void) {
    CUresult result = word ? CUDA_SUCCESS : cuMemHostAlloc((void**)&word, 64, CU_MEMHOSTALLOC_DEVICEMAP);
    if (result != CUDA_SUCCESS) return result;
    *word = 0;
    return cuStreamWaitValue32(0, (CUdeviceptr)word, 1, CU_STREAM_WAIT_VALUE_EQ);
}

static void answer(CUresult result, const char* good) {
    if (result == CUDA_SUCCESS)
        puts(good);
    else
        printf("error %d\n", (int)result);
}

static void obey(const char* line) {
    char what[32] = "", way[32] = "";
    unsigned long long number = 0;
    int times = 1, index = 0;
    sscanf(line, "%31s", what);
    if (strcmp(what, "add") == 0 && sscanf(line, "%*s %31s %llu %d", way, &number, &times) >= 2) {
        enum Way kind = *way == 'o' ? in_order : *way == 'm' ? by_mapping : by_alloc;
        CUresult result = CUDA_SUCCESS;
        for (int i = 0; result == CUDA_SUCCESS && i < times && count < MOST_PIECES; ++i) result = add(kind, number);
        answer(result, "added");
    } else if (strcmp(what, "free") == 0 && count) {
        answer(give(sscanf(line, "%*s %d", &index) == 1 ? index % count : count - 1), "freed");
    } else if (strcmp(what, "write") == 0 && count) {
        answer(sscanf(line, "%*s %d", &index) == 1 ? fill(&pieces[index % count]) : CUDA_SUCCESS, "written");
    } else if (strcmp(what, "bind") == 0 && sscanf(line, "%*s %31s %d", way, &index) == 2 && index < count) {
        answer(bind_to_multicast(&pieces[index], *way), "bound");
    } else if (strcmp(what, "bind_newer") == 0) {
        answer(bind_by_newer_version(), "bound");
    } else if (strcmp(what, "access") == 0 && sscanf(line, "%*s %d", &index) == 1 && index < count) {
        answer(set_access(&pieces[index]), "set");
    } else if (strcmp(what, "hold") == 0) {
        answer(hold(), "held");
    } else if (strcmp(what, "release") == 0 && word) {
        *word = 1;
        answer(cuCtxSynchronize(), "released");
    } else if (strcmp(what, "check") == 0) {
        puts(is_whole() ? "whole" : "torn");
    } else if (strcmp(what, "look") == 0) {
        size_t free = 0, total = 0;
        answer(cuMemGetInfo(&free, &total), "looked");  // and the failing driver has seen how much is in use
    } else if (strcmp(what, "attend") == 0 && faults) {
        pthread_t thread;
        puts(pthread_create(&thread, NULL, attend, NULL) == 0 ? "attends" : "no thread");
    } else {
        puts("nothing");
    }
}

int main(void) {
    static const char module_text[] = "softgpu 1\nkernel fill function=fill\n";
    CUmodule module;
    CUdevice device;
    if (failed(cuInit(0)) || failed(cuDeviceGet(&device, 0)) || failed(cuDevicePrimaryCtxRetain(&context, device)) ||
        failed(cuCtxSetCurrent(context)) || failed(cuModuleLoadData(&module, module_text)) ||
        failed(cuModuleGetFunction(&fill_kernel, module, "fill")))
        return 1;
    faults = open_faults();
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("ready");
    char line[256];
    while (fgets(line, sizeof line, stdin)) obey(line);
    return 0;
}
