// A driver that does nothing, instantly, and without a system call: what remains of a launch is the interposer's.
// Its streams are never done, so a tenant that launched once stays busy.
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>

typedef int CUresult;
static int context;

CUresult cuInit(unsigned flags) { return flags != 0; }
CUresult cuCtxGetCurrent(void** out) {
    *out = &context;
    return 0;
}
CUresult cuCtxSetCurrent(void* given) { return given != &context; }
CUresult cuCtxGetDevice(int* out) {
    *out = 0;
    return 0;
}
CUresult cuDeviceGetUuid_v2(char* out, int device) {
    memset(out, 7, 16);
    return device;
}
CUresult cuStreamGetCtx(void* stream, void** out) {
    (void)stream;
    *out = &context;
    return 0;
}
CUresult cuStreamQuery(void* stream) {
    (void)stream;
    return 600;
}
CUresult cuThreadExchangeStreamCaptureMode(int* mode) {
    *mode = 0;
    return 0;
}

// As the real driver does when it makes a channel group: asks the kernel for a slice of 2048 us. The "kernel" is a file
// here; what was asked for is the result.
typedef struct {
    uint32_t client, object, command, flags;
    uint64_t parameters;
    uint32_t parameters_bytes, status;
} ResourceControl;
long null_driver_slice(int fd, uint32_t command) {
    uint64_t slice = 2048;
    ResourceControl control = {1, 2, command, 0, (uint64_t)(uintptr_t)&slice, sizeof slice, 0};
    ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, 'F', 0x2A, sizeof control), &control);
    return (long)slice;
}

// Needed to be there, not to be called.
#define UNUSED(name) \
    CUresult name(void) { return 999; }
UNUSED(cuDevicePrimaryCtxGetState)
UNUSED(cuDevicePrimaryCtxRetain)
UNUSED(cuDevicePrimaryCtxRelease_v2)
UNUSED(cuEventCreate)
UNUSED(cuEventDestroy_v2)
UNUSED(cuEventElapsedTime)
UNUSED(cuEventQuery)
UNUSED(cuEventRecord)
UNUSED(cuGraphAddBatchMemOpNode)
UNUSED(cuGraphAddDependencies)
UNUSED(cuGraphClone)
UNUSED(cuGraphDestroy)
UNUSED(cuGraphGetNodes)
UNUSED(cuGraphKernelNodeGetParams_v2)
UNUSED(cuGraphNodeFindInClone)
UNUSED(cuGraphNodeGetDependencies)
UNUSED(cuGraphNodeGetType)
UNUSED(cuGraphRemoveDependencies)
UNUSED(cuMemHostGetDevicePointer_v2)
UNUSED(cuMemHostRegister_v2)
UNUSED(cuStreamBatchMemOp_v2)
UNUSED(cuStreamIsCapturing)
UNUSED(cuStreamWaitValue32_v2)

CUresult cuLaunchKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, void* stream, void** parameters, void** extra) {
    (void)f, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)stream, (void)parameters,
        (void)extra;
    return 0;
}
