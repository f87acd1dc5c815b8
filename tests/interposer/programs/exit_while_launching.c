// Ends through exit() while other threads launch, allocate, and make and destroy streams, and goes on for as long as
// each takes for 1000 rounds more: they meet every stage of everybody's teardown. "ended" says that they did.
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { kThreads = 3, kMore = 1000 };
typedef int (*Call)();
static Call set_current, fill, allocate, give_back, stream_create, stream_destroy;
static void* context;
static unsigned long long memory;
static atomic_long rounds[kThreads];

static void use_default_stream(void) { fill(memory, 0, (size_t)64, (void*)0); }
static void use_memory(void) {
    unsigned long long mine = 0;
    if (allocate(&mine, (size_t)4096) == 0) give_back(mine);
}
static void use_stream(void) {
    void* stream = 0;
    if (stream_create(&stream, 1u)) return;
    fill(memory, 0, (size_t)64, stream);
    stream_destroy(stream);
}
static void (*const uses[kThreads])(void) = {use_default_stream, use_memory, use_stream};

static void* go_on_for_ever(void* number) {
    set_current(context);
    for (;;) {
        uses[(long)number]();
        atomic_fetch_add(&rounds[(long)number], 1);
    }
    return 0;
}

static void wait_for_rounds(long more) {
    for (int i = 0; i < kThreads; ++i)
        for (long before = atomic_load(&rounds[i]); atomic_load(&rounds[i]) < before + more;) sched_yield();
}

static void at_the_end(void) {
    wait_for_rounds(kMore);
    printf("ended\n");
    fflush(stdout);
}

int main(void) {
    atexit(at_the_end);  // registered first, so it runs after all the others
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    Call init = (Call)dlsym(driver, "cuInit"), device_get = (Call)dlsym(driver, "cuDeviceGet");
    Call retain = (Call)dlsym(driver, "cuDevicePrimaryCtxRetain");
    set_current = (Call)dlsym(driver, "cuCtxSetCurrent");
    fill = (Call)dlsym(driver, "cuMemsetD8Async");
    allocate = (Call)dlsym(driver, "cuMemAlloc_v2");
    give_back = (Call)dlsym(driver, "cuMemFree_v2");
    stream_create = (Call)dlsym(driver, "cuStreamCreate");
    stream_destroy = (Call)dlsym(driver, "cuStreamDestroy_v2");
    int device = 0;
    if (init(0) || device_get(&device, 0) || retain(&context, device) || set_current(context)) return 3;
    if (allocate(&memory, (size_t)4096)) return 4;
    for (long i = 0; i < kThreads; ++i) {
        pthread_t thread;
        if (pthread_create(&thread, 0, go_on_for_ever, (void*)i)) return 5;
    }
    wait_for_rounds(100);
    exit(0);
}
