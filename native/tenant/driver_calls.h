// The driver functions that the tenant itself calls, past the hooks. Every driver since CUDA 11.7 has all of them; with
// an older driver everything is passed through.
#pragma once

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#endif
#include <cuda.h>

#define TENANT_DRIVER_CALLS(CALL)       \
    CALL(cuCtxGetCurrent)               \
    CALL(cuCtxSetCurrent)               \
    CALL(cuCtxGetDevice)                \
    CALL(cuDeviceGetUuid_v2)            \
    CALL(cuDevicePrimaryCtxGetState)    \
    CALL(cuDevicePrimaryCtxRetain)      \
    CALL(cuDevicePrimaryCtxRelease_v2)  \
    CALL(cuEventCreate)                 \
    CALL(cuEventDestroy_v2)             \
    CALL(cuEventElapsedTime)            \
    CALL(cuEventQuery)                  \
    CALL(cuEventRecord)                 \
    CALL(cuGraphAddBatchMemOpNode)      \
    CALL(cuGraphAddDependencies)        \
    CALL(cuGraphClone)                  \
    CALL(cuGraphDestroy)                \
    CALL(cuGraphGetNodes)               \
    CALL(cuGraphKernelNodeGetParams_v2) \
    CALL(cuGraphNodeFindInClone)        \
    CALL(cuGraphNodeGetDependencies)    \
    CALL(cuGraphNodeGetType)            \
    CALL(cuGraphRemoveDependencies)     \
    CALL(cuMemHostGetDevicePointer_v2)  \
    CALL(cuMemHostRegister_v2)          \
    CALL(cuStreamBatchMemOp_v2)         \
    CALL(cuStreamGetCtx)                \
    CALL(cuStreamIsCapturing)           \
    CALL(cuStreamQuery)                 \
    CALL(cuStreamWaitValue32_v2)        \
    CALL(cuThreadExchangeStreamCaptureMode)

// Without these a driver only has less to count: what it lacks answers CUDA_ERROR_NOT_SUPPORTED.
#define TENANT_MEMORY_CALLS(CALL)      \
    CALL(cuCtxFromGreenCtx)            \
    CALL(cuCtxGetId)                   \
    CALL(cuDeviceGetDefaultMemPool)    \
    CALL(cuDeviceGetGraphMemAttribute) \
    CALL(cuDeviceGetMemPool)           \
    CALL(cuDeviceGraphMemTrim)         \
    CALL(cuDeviceTotalMem_v2)          \
    CALL(cuGraphMemAllocNodeGetParams) \
    CALL(cuGraphMemFreeNodeGetParams)  \
    CALL(cuMemFreeAsync)               \
    CALL(cuMemPoolGetAttribute)        \
    CALL(cuMemPoolTrimTo)              \
    CALL(cuPointerGetAttributes)       \
    CALL(cuStreamGetCtx_v2)

// Likewise: without these graphs are looked into less closely.
#define TENANT_GRAPH_CALLS(CALL)        \
    CALL(cuGraphChildGraphNodeGetGraph) \
    CALL(cuGraphNodeGetDependencies_v2) \
    CALL(cuGraphNodeGetDependentNodes)

// Likewise: without these a block is taken to fill an SM (launch_rule.h).
#define TENANT_RULE_CALLS(CALL) CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor)

// Likewise: without these no stream is a lane's.
#define TENANT_LANE_CALLS(CALL) CALL(cuStreamGetFlags)

// Likewise: without these cut kernels go on in the gaps of a burst (hold.h).
#define TENANT_HOLD_CALLS(CALL) \
    CALL(cuLaunchKernel)        \
    CALL(cuModuleGetFunction)   \
    CALL(cuModuleLoadData)

// Likewise: without these memory does not move.
#define TENANT_MOVING_CALLS(CALL)        \
    CALL(cuCtxRecordEvent)               \
    CALL(cuCtxSynchronize)               \
    CALL(cuDeviceCanAccessPeer)          \
    CALL(cuDeviceGetAttribute)           \
    CALL(cuDeviceGetCount)               \
    CALL(cuMemAddressFree)               \
    CALL(cuMemAddressReserve)            \
    CALL(cuMemCreate)                    \
    CALL(cuMemExportToShareableHandle)   \
    CALL(cuMemHostUnregister)            \
    CALL(cuMemImportFromShareableHandle) \
    CALL(cuMemMap)                       \
    CALL(cuMemRelease)                   \
    CALL(cuMemSetAccess)                 \
    CALL(cuMemUnmap)                     \
    CALL(cuMemcpyDtoHAsync_v2)           \
    CALL(cuMemcpyHtoDAsync_v2)           \
    CALL(cuStreamCreate)                 \
    CALL(cuStreamSynchronize)

namespace tenant {

struct DriverCalls {
#define CALL(function) decltype(&::function) function;
    TENANT_DRIVER_CALLS(CALL)
    TENANT_MEMORY_CALLS(CALL)
    TENANT_GRAPH_CALLS(CALL)
    TENANT_LANE_CALLS(CALL)
    TENANT_RULE_CALLS(CALL)
    TENANT_HOLD_CALLS(CALL)
    TENANT_MOVING_CALLS(CALL)
#undef CALL
};

extern DriverCalls driver;

}  // namespace tenant
