#include "softgpu/context.h"

#include "softgpu/capture.h"
#include "softgpu/event.h"
#include "softgpu/module.h"
#include "softgpu/stream.h"

namespace softgpu {
namespace {

constexpr int deepest_stack = 128;
// Plain data: usable from other destructors at thread and process exit.
thread_local CUcontext stack[deepest_stack];
thread_local int depth = 0;

}  // namespace

Registry<Context, CUcontext>& contexts() {
    static auto& registry = *new Registry<Context, CUcontext>(1);
    return registry;
}

bool push_context(CUcontext context) {
    if (depth == deepest_stack) return false;
    stack[depth++] = context;
    return true;
}

CUcontext pop_context() { return depth == 0 ? nullptr : stack[--depth]; }

CUcontext top_context() { return depth == 0 ? nullptr : stack[depth - 1]; }

void set_context(CUcontext context) {
    if (depth > 0) --depth;
    if (context) push_context(context);
}

CUresult check_context(Context& context) {
    if (context.destroyed.load(std::memory_order_acquire)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return static_cast<CUresult>(context.engine->error());
}

CUresult current_context(ContextRef* out) {
    TRY(check_initialised());
    const CUcontext handle = top_context();
    if (!handle) return CUDA_ERROR_INVALID_CONTEXT;
    *out = contexts().find(handle);
    if (!*out) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return check_context(**out);
}

ContextRef context_from(CUcontext handle) { return contexts().find(handle); }

CUcontext handle_of(const Context& context) { return context.handle; }

Engine& engine_of(Context& context) { return *context.engine; }

int device_of(const Context& context) { return context.device; }

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

std::vector<OpId> unfinished_in(Context& context) {
    std::vector<OpId> unfinished;
    {
        const std::lock_guard<std::mutex> lock(context.mutex);
        unfinished = context.closing;
        for (const StreamRef& stream : context.streams) unfinished.push_back(context.engine->last(stream->queue));
        if (context.records) unfinished.push_back(context.engine->last(context.records));
    }
    unfinished.push_back(context.engine->last(context.legacy->queue));
    return unfinished;
}

CUresult synchronize(Context& context) {
    for (const OpId op : unfinished_in(context)) context.engine->wait(op);
    trim_pools(context);
    return check_context(context);
}

}  // namespace softgpu
