// Green contexts: a part of a device's SMs under a handle of its own. As in the driver, a green context is its device's
// primary context in everything but its streams: memory, modules and events are the primary's and outlive it. A kernel
// in a green stream gets the SMs of the green context at most; those of several green streams are not counted together.
#include <algorithm>

#include "softgpu/capture.h"
#include "softgpu/event.h"
#include "softgpu/stream.h"

namespace softgpu {
namespace {

Registry<GreenContext, CUgreenCtx>& greens() {
    static auto& registry = *new Registry<GreenContext, CUgreenCtx>(12);
    return registry;
}

// A description is the number of its SMs, and never null.
CUdevResourceDesc description_of(const CUdevResource* resources, unsigned count) {
    unsigned sms = 0;
    for (unsigned i = 0; i < count; ++i) sms += resources[i].sm.smCount;
    return reinterpret_cast<CUdevResourceDesc>(uintptr_t{sms} << 12 | 1);
}
int sms_in(CUdevResourceDesc description) { return static_cast<int>(reinterpret_cast<uintptr_t>(description) >> 12); }

CUresult create(CUgreenCtx* out, CUdevResourceDesc description, CUdevice device, unsigned flags) {
    if (!out || !description || flags != CU_GREEN_CTX_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
    auto green = std::make_shared<GreenContext>();
    TRY(cuDevicePrimaryCtxRetain(&green->primary, device));
    green->device = device;
    green->sms = std::min(sms_in(description), device_attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
    green->handle = greens().issue();
    green->context = contexts().issue();
    contexts().put(green->context, context_from(green->primary));
    greens().put(green->handle, green);
    *out = green->handle;
    return CUDA_SUCCESS;
}

CUresult destroy(CUgreenCtx handle) {
    const GreenRef green = greens().remove(handle);
    if (!green) return greens().was_issued(handle) ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
    green->destroyed.store(true);
    std::vector<StreamRef> streams;
    if (const ContextRef context = contexts().remove(green->context)) {
        const std::lock_guard<std::mutex> lock(context->mutex);
        streams = context->streams;
    }
    for (const StreamRef& stream : streams)
        if (stream->green == green) leave_capture(*stream);
    return cuDevicePrimaryCtxRelease_v2(green->device);
}

CUresult find(CUgreenCtx handle, GreenRef* out) {
    *out = greens().find(handle);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult create_stream(CUstream* out, CUgreenCtx handle, unsigned flags, int priority) {
    if (!out || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    GreenRef green;
    TRY(find(handle, &green));
    const ContextRef context = context_from(green->primary);
    if (!context) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *out = open_stream(context, StreamKind::created, flags, priority, green)->handle;
    return CUDA_SUCCESS;
}

CUresult split(CUdevResource* result, unsigned* groups, const CUdevResource* input, CUdevResource* rest,
               unsigned minimum) {
    if (!groups || !input || input->type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_VALUE;
    const unsigned each = std::max((minimum + 7) / 8 * 8, 8u), most = input->sm.smCount / each;
    if (!result) {
        *groups = most;
        return CUDA_SUCCESS;
    }
    if (most == 0) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    *groups = std::min(*groups, most);
    for (unsigned i = 0; i < *groups; ++i) {
        result[i] = *input;
        result[i].sm.smCount = each;
    }
    if (rest) {
        *rest = *input;
        rest->sm.smCount = input->sm.smCount - *groups * each;
    }
    return CUDA_SUCCESS;
}

}  // namespace

GreenRef green_of(CUcontext context) {
    return greens().find_if([&](const GreenContext& green) { return green.context == context; });
}

}  // namespace softgpu

using namespace softgpu;

DRIVER_API cuDeviceGetDevResource(CUdevice device, CUdevResource* resource, CUdevResourceType type) {
    return entry([&] {
        if (!resource || type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_VALUE;
        if (!device_spec(device)) return CUDA_ERROR_INVALID_DEVICE;
        *resource = CUdevResource{};
        resource->type = type;
        resource->sm.smCount =
            static_cast<unsigned>(device_attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
        return CUDA_SUCCESS;
    });
}
ENTRY(cuDevSmResourceSplitByCount,
      (CUdevResource * result, unsigned int* groups, const CUdevResource* input, CUdevResource* rest, unsigned int,
       unsigned int minimum),
      split(result, groups, input, rest, minimum))
DRIVER_API cuDevResourceGenerateDesc(CUdevResourceDesc* description, CUdevResource* resources, unsigned int count) {
    return entry([&] {
        if (!description || !resources || count == 0) return CUDA_ERROR_INVALID_VALUE;
        for (unsigned i = 0; i < count; ++i)
            if (resources[i].type != CU_DEV_RESOURCE_TYPE_SM || resources[i].sm.smCount == 0)
                return CUDA_ERROR_INVALID_RESOURCE_TYPE;
        *description = description_of(resources, count);
        return CUDA_SUCCESS;
    });
}
ENTRY(cuGreenCtxCreate, (CUgreenCtx * green, CUdevResourceDesc description, CUdevice device, unsigned int flags),
      create(green, description, device, flags))
ENTRY(cuGreenCtxDestroy, (CUgreenCtx green), destroy(green))
DRIVER_API cuCtxFromGreenCtx(CUcontext* context, CUgreenCtx handle) {
    return entry([&] {
        if (!context) return CUDA_ERROR_INVALID_VALUE;
        GreenRef green;
        TRY(find(handle, &green));
        *context = green->context;
        return CUDA_SUCCESS;
    });
}
ENTRY(cuGreenCtxStreamCreate, (CUstream * stream, CUgreenCtx green, unsigned int flags, int priority),
      create_stream(stream, green, flags, priority))
