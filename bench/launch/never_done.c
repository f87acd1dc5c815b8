/* A driver whose launches do nothing and whose streams are never done: what a launch costs is the interposer's, and a
   tenant that launched once stays busy, however slowly it is stepped. What the interposer asks in every launch to the
   default stream, the current context, is one load. All else is the software GPU's: this library is linked with it, and
   a look-up in this one goes on to that one. */
#define _GNU_SOURCE
#include <dlfcn.h>

/* In the loader's reserve: where a library that is opened late has its own, each access is a call. */
static __thread void* current __attribute__((tls_model("initial-exec")));

int cuLaunchKernel(void) { return 0; }

int cuStreamQuery(void) {
    enum { CUDA_ERROR_NOT_READY = 600 };
    return CUDA_ERROR_NOT_READY;
}

/* The probe and the interposer change contexts by this function only. */
int cuCtxSetCurrent(void* context) {
    enum { CUDA_ERROR_NOT_FOUND = 500 };
    int (*softgpu)(void*) = (int (*)(void*))dlsym(RTLD_NEXT, "cuCtxSetCurrent");
    int result = softgpu ? softgpu(context) : CUDA_ERROR_NOT_FOUND;
    if (!result) current = context;
    return result;
}

int cuCtxGetCurrent(void** context) {
    *context = current;
    return 0;
}
