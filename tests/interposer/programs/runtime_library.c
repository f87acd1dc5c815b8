// Stands for a library with a static CUDA runtime in it: it opens the driver itself, privately, and takes everything
// from cuGetProcAddress. Linked against nothing of CUDA's.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef int CUresult;
typedef CUresult (*GetProcAddress)(const char*, void**, int, uint64_t, int*);

static GetProcAddress get;

static void* function(const char* name, int version, uint64_t flags) {
    void* found = NULL;
    int status = -1;
    if (get(name, &found, version, flags, &status) != 0 || !found) {
        fprintf(stderr, "no %s: status %d\n", name, status);
        exit(3);
    }
    return found;
}

static const char kModule[] = "softgpu 1\nkernel empty time=1us sms=1\n";

int run_kernels(const char* library, int count, uint64_t flags) {
    void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        fprintf(stderr, "%s\n", dlerror());
        return -1;
    }
    get = (GetProcAddress)dlsym(handle, "cuGetProcAddress_v2");
    void *context, *module, *kernel;
    int device, failed = 0;
    failed |= ((CUresult (*)(unsigned))function("cuInit", 2000, 0))(0);
    failed |= ((CUresult (*)(int*, int))function("cuDeviceGet", 2000, 0))(&device, 0);
    failed |= ((CUresult (*)(void**, int))function("cuDevicePrimaryCtxRetain", 7000, 0))(&context, device);
    failed |= ((CUresult (*)(void*))function("cuCtxSetCurrent", 4000, 0))(context);
    failed |= ((CUresult (*)(void**, const void*))function("cuModuleLoadData", 2000, 0))(&module, kModule);
    failed |=
        ((CUresult (*)(void**, void*, const char*))function("cuModuleGetFunction", 2000, 0))(&kernel, module, "empty");
    CUresult (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                       void**) = function("cuLaunchKernel", 7000, flags);
    for (int i = 0; i < count; ++i) failed |= launch(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    failed |= ((CUresult (*)(void))function("cuCtxSynchronize", 2000, 0))();
    return failed;
}
