// cuCtx* and cuDevicePrimaryCtx*.
#include "softgpu/capture.h"
#include "softgpu/context.h"
#include "softgpu/event.h"
#include "softgpu/module.h"
#include "softgpu/stream.h"

namespace softgpu {
namespace {

// A device's primary context keeps its handle over its lives.
struct Primary {
    std::mutex mutex;
    ContextRef context;
    CUcontext handle = nullptr;
    unsigned retained = 0;
};

Primary& primary_of(CUdevice device) {
    static auto& all = *new std::vector<Primary>(static_cast<size_t>(device_count()));
    return all[static_cast<size_t>(device)];
}

CUresult check_device(CUdevice device) { return device_spec(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE; }

CUresult check_flags(unsigned flags) {
    if (flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) return CUDA_ERROR_INVALID_VALUE;
    const unsigned schedule = flags & CU_CTX_SCHED_MASK;
    return schedule & (schedule - 1) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult make_context(CUdevice device, bool primary, CUcontext handle, ContextRef* out) {
    auto context = std::make_shared<Context>();
    std::string why;
    context->engine = Engine::connect(machine_index(device), &why);
    if (!context->engine) return CUDA_ERROR_DEVICE_UNAVAILABLE;
    context->handle = handle ? handle : contexts().issue();
    context->device = device;
    context->primary = primary;
    context->legacy = open_stream(context, StreamKind::legacy, CU_STREAM_DEFAULT, 0);
    contexts().put(context->handle, context);
    *out = std::move(context);
    return CUDA_SUCCESS;
}

// Ends all that belongs to it; threads that wait on it return with an error.
void retire(const ContextRef& context) {
    contexts().remove(context->handle);
    context->destroyed.store(true, std::memory_order_release);
    context->engine->fail(CUDA_ERROR_CONTEXT_IS_DESTROYED);
    abandon_captures_of(*context);
    forget_streams_of(*context);
    forget_events_of(*context);
    forget_modules_of(*context);
    release_memory_of(*context);
}

CUresult retain_primary(CUcontext* out, CUdevice device) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    TRY(check_device(device));
    Primary& primary = primary_of(device);
    const std::lock_guard<std::mutex> lock(primary.mutex);
    if (!primary.context) {
        TRY(make_context(device, true, primary.handle, &primary.context));
        primary.handle = primary.context->handle;
    }
    ++primary.retained;
    *out = primary.handle;
    return CUDA_SUCCESS;
}

// One of those who retain it lets go, or, at a reset, all of them.
CUresult release_primary(CUdevice device, bool for_all) {
    TRY(check_device(device));
    Primary& primary = primary_of(device);
    ContextRef last;
    {
        const std::lock_guard<std::mutex> lock(primary.mutex);
        if (primary.retained == 0 && !for_all) return CUDA_ERROR_INVALID_CONTEXT;
        primary.retained = for_all ? 0 : primary.retained - 1;
        if (primary.retained == 0) last.swap(primary.context);
    }
    if (last) retire(last);
    return CUDA_SUCCESS;
}

CUresult create_context(CUcontext* out, unsigned flags, CUdevice device) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    TRY(check_flags(flags));
    TRY(check_device(device));
    ContextRef context;
    TRY(make_context(device, false, nullptr, &context));
    if (!push_context(context->handle)) {
        retire(context);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = context->handle;
    return CUDA_SUCCESS;
}

CUresult destroy_context(CUcontext handle) {
    const ContextRef context = context_from(handle);
    if (!context && contexts().was_issued(handle)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (!context || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
    if (top_context() == handle) pop_context();
    retire(context);
    return CUDA_SUCCESS;
}

CUresult push_current(CUcontext handle) {
    if (!handle) return CUDA_ERROR_INVALID_VALUE;
    if (!context_from(handle)) return CUDA_ERROR_INVALID_CONTEXT;
    return push_context(handle) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult pop_current(CUcontext* out) {
    if (!top_context()) return CUDA_ERROR_INVALID_CONTEXT;
    const CUcontext handle = pop_context();
    if (out) *out = handle;
    return CUDA_SUCCESS;
}

// Null means the current one.
CUresult context_or_current(CUcontext handle, ContextRef* out) {
    if (!handle) return current_context(out);
    *out = context_from(handle);
    return *out ? check_context(**out) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult synchronize_checked(CUcontext handle) {
    ContextRef context;
    TRY(context_or_current(handle, &context));
    TRY(forbid_while_capturing(*context));
    TRY(unsafe_during_capture());
    return synchronize(*context);
}

}  // namespace

}  // namespace softgpu

using namespace softgpu;

ENTRY(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device), retain_primary(context, device))
ENTRY(cuDevicePrimaryCtxRelease_v2, (CUdevice device), release_primary(device, false))
ENTRY(cuDevicePrimaryCtxReset_v2, (CUdevice device), release_primary(device, true))
DRIVER_API cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
    return entry([&] {
        if (!flags || !active) return CUDA_ERROR_INVALID_VALUE;
        TRY(check_device(device));
        Primary& primary = primary_of(device);
        const std::lock_guard<std::mutex> lock(primary.mutex);
        *flags = 0;
        *active = primary.context ? 1 : 0;
        return CUDA_SUCCESS;
    });
}

DRIVER_API cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* parameters, unsigned int flags, CUdevice device) {
    return entry([&] {
        if (parameters && parameters->numExecAffinityParams > 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
        if (parameters && parameters->cigParams) return CUDA_ERROR_NOT_SUPPORTED;
        return create_context(context, flags, device);
    });
}

ENTRY(cuCtxDestroy_v2, (CUcontext context), destroy_context(context))
ENTRY(cuCtxPushCurrent_v2, (CUcontext context), push_current(context))
ENTRY(cuCtxPopCurrent_v2, (CUcontext * context), pop_current(context))

DRIVER_API cuCtxSetCurrent(CUcontext context) {
    return entry([&] {
        if (context && !context_from(context)) return CUDA_ERROR_INVALID_CONTEXT;
        set_context(context);
        return CUDA_SUCCESS;
    });
}

DRIVER_API cuCtxGetCurrent(CUcontext* context) {
    return entry([&] {
        if (!context) return CUDA_ERROR_INVALID_VALUE;
        *context = top_context();
        return CUDA_SUCCESS;
    });
}

DRIVER_API cuCtxGetDevice(CUdevice* device) {
    return entry([&] {
        if (!device) return CUDA_ERROR_INVALID_VALUE;
        ContextRef context;
        TRY(current_context(&context));
        *device = context->device;
        return CUDA_SUCCESS;
    });
}

DRIVER_API cuCtxGetDevice_v2(CUdevice* device, CUcontext handle) {
    return entry([&] {
        if (!device) return CUDA_ERROR_INVALID_VALUE;
        ContextRef context;
        TRY(context_or_current(handle, &context));
        *device = context->device;
        return CUDA_SUCCESS;
    });
}

ENTRY(cuCtxSynchronize, (), synchronize_checked(nullptr))
ENTRY(cuCtxSynchronize_v2, (CUcontext context), synchronize_checked(context))

DRIVER_API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    return entry([&] {
        ContextRef context;
        TRY(current_context(&context));
        if (least) *least = lowest_priority;
        if (greatest) *greatest = highest_priority;
        return CUDA_SUCCESS;
    });
}
