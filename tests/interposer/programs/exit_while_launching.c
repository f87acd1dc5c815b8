// Ends through exit() while other threads launch, and goes on for as long as they take for 2000 launches more each:
// they meet every stage of everybody's teardown. "ended N" says that they did.
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { kThreads = 3, kMore = 2000 };
typedef int (*Call)();
static Call set_current, fill;
static void* context;
static unsigned long long memory;
static atomic_long launches[kThreads];

static void* launch_for_ever(void* number) {
    set_current(context);
    for (;;) {
        fill(memory, 0, (size_t)64, (void*)0);
        atomic_fetch_add(&launches[(long)number], 1);
    }
    return 0;
}

static void wait_for_launches(long more) {
    for (int i = 0; i < kThreads; ++i)
        for (long before = atomic_load(&launches[i]); atomic_load(&launches[i]) < before + more;) sched_yield();
}

static void at_the_end(void) {
    wait_for_launches(kMore);
    printf("ended\n");
    fflush(stdout);
}

int main(void) {
    atexit(at_the_end);  // registered first, so it runs after all the others
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    Call init = (Call)dlsym(driver, "cuInit"), device_get = (Call)dlsym(driver, "cuDeviceGet");
    Call retain = (Call)dlsym(driver, "cuDevicePrimaryCtxRetain"), allocate = (Call)dlsym(driver, "cuMemAlloc_v2");
    set_current = (Call)dlsym(driver, "cuCtxSetCurrent");
    fill = (Call)dlsym(driver, "cuMemsetD8Async");
    int device = 0;
    if (init(0) || device_get(&device, 0) || retain(&context, device) || set_current(context)) return 3;
    if (allocate(&memory, (size_t)4096)) return 4;
    for (long i = 0; i < kThreads; ++i) {
        pthread_t thread;
        if (pthread_create(&thread, 0, launch_for_ever, (void*)i)) return 5;
    }
    wait_for_launches(100);
    exit(0);
}
