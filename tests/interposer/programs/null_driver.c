// A driver that does nothing, instantly, and without a system call: what remains of a launch is the interposer's.
// Its streams are never done, so a tenant that launched once stays busy.
#include <stdint.h>
#include <string.h>

typedef int CUresult;
static int context;

CUresult cuInit(unsigned flags) { return flags != 0; }
CUresult cuCtxGetCurrent(void** out) { *out = &context; return 0; }
CUresult cuCtxSetCurrent(void* given) { return given != &context; }
CUresult cuCtxGetDevice(int* out) { *out = 0; return 0; }
CUresult cuDeviceGetUuid_v2(char* out, int device) { memset(out, 7, 16); return device; }
CUresult cuStreamGetCtx(void* stream, void** out) { (void)stream; *out = &context; return 0; }
CUresult cuStreamQuery(void* stream) { (void)stream; return 600; }
CUresult cuThreadExchangeStreamCaptureMode(int* mode) { *mode = 0; return 0; }

// Needed to be there, not to be called.
#define UNUSED(name) CUresult name(void) { return 999; }
UNUSED(cuDevicePrimaryCtxGetState)
UNUSED(cuDevicePrimaryCtxRetain)
UNUSED(cuDevicePrimaryCtxRelease_v2)
UNUSED(cuEventCreate)
UNUSED(cuEventDestroy_v2)
UNUSED(cuEventQuery)
UNUSED(cuEventRecord)
UNUSED(cuMemHostGetDevicePointer_v2)
UNUSED(cuMemHostRegister_v2)
UNUSED(cuStreamIsCapturing)
UNUSED(cuStreamWaitValue32_v2)

CUresult cuLaunchKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, void* stream, void** parameters, void** extra) {
    (void)f, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)stream, (void)parameters,
        (void)extra;
    return 0;
}
