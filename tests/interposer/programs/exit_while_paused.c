// Ends while its memory may be on the host. What runs after that is what a program's last destructors do: one waits for
// a thread that is in a call of the driver, copies something back, launches, and frees what there is.
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define BYTES ((size_t)4 << 20)

static CUdeviceptr memory, other;
static CUcontext context;
static CUfunction fill;
static pthread_t thread;
static CUresult in_thread;

static void* use(void* unused) {
    cuCtxSetCurrent(context);
    in_thread = cuMemsetD8(memory, 7, 100);
    return unused;
}

static CUresult launch(void) {
    float value = 1;
    unsigned long long n = 100;
    void* parameters[] = {&memory, &value, &n};
    return cuLaunchKernel(fill, 1, 1, 1, 64, 1, 1, 0, 0, parameters, 0);
}

static void at_end(void) {
    char there[100];
    pthread_join(thread, NULL);
    printf("thread %d", (int)in_thread);
    printf(" copy %d", (int)cuMemcpyDtoH(there, memory, sizeof there));
    printf(" launch %d", (int)launch());
    printf(" free %d", (int)cuMemFree(memory));
    printf(" in order %d", (int)cuMemFreeAsync(other, 0));
    printf(" synchronize %d\n", (int)cuCtxSynchronize());
    fflush(stdout);
}

int main(void) {
    static const char module_text[] = "softgpu 1\nkernel fill function=fill\n";
    CUmodule module;
    char line[8];
    // It runs after the interposer's handler, which the first allocation registers, and before the driver's.
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
        cuModuleLoadData(&module, module_text) || cuModuleGetFunction(&fill, module, "fill") || atexit(at_end) ||
        cuMemAlloc(&memory, BYTES) || cuMemAllocAsync(&other, BYTES, 0) || cuMemsetD8(memory, 1, BYTES) ||
        cuCtxSynchronize())
        abort();
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 1;
    return pthread_create(&thread, NULL, use, NULL);
}
