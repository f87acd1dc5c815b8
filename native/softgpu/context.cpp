#include "softgpu/context.h"

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

}  // namespace softgpu
