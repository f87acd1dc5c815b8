// A tenant that has used its GPU once and rests: opens the driver as programs do, sets a byte of its memory, says so,
// and waits for the end of its input. Its work and its memory make it all that an idle tenant is.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

int main(void) {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return 1;
    int (*init)(unsigned) = dlsym(driver, "cuInit");
    int (*retain)(void**, int) = dlsym(driver, "cuDevicePrimaryCtxRetain");
    int (*use)(void*) = dlsym(driver, "cuCtxSetCurrent");
    int (*allocate)(uint64_t*, size_t) = dlsym(driver, "cuMemAlloc_v2");
    int (*set)(uint64_t, unsigned char, size_t) = dlsym(driver, "cuMemsetD8_v2");
    int (*synchronize)(void) = dlsym(driver, "cuCtxSynchronize");
    void* context = NULL;
    uint64_t memory = 0;
    if (!init || !retain || !use || !allocate || !set || !synchronize) return 2;
    if (init(0) || retain(&context, 0) || use(context) || allocate(&memory, 4096) || set(memory, 1, 1)) return 3;
    if (synchronize()) return 4;
    puts("here");
    fflush(stdout);
    while (getchar() != EOF) {
    }
    return 0;
}
