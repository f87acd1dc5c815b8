// cuStream*: making, asking, waiting. Captures, events and value operations have files of their own.
#include "softgpu/capture.h"
#include "softgpu/stream.h"

namespace softgpu {
namespace {

CUresult create(CUstream* out, unsigned flags, int priority) {
    if (!out || flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) return CUDA_ERROR_INVALID_VALUE;
    ContextRef context;
    TRY(current_context(&context));
    *out = open_stream(context, StreamKind::created, flags, priority, green_of(top_context()))->handle;
    return CUDA_SUCCESS;
}

CUresult query(CUstream handle, DefaultStream which) {
    StreamRef stream;
    ContextRef context;
    TRY(find_stream(handle, which, &stream, &context));
    TRY(forbid_while_capturing(*context, *stream));
    TRY(unsafe_during_capture());
    for (const OpId op : unfinished_in(*context, *stream)) {
        if (!context->engine->done(op)) return CUDA_ERROR_NOT_READY;
    }
    return check_context(*context);
}

CUresult synchronize_stream(CUstream handle, DefaultStream which) {
    StreamRef stream;
    ContextRef context;
    TRY(find_stream(handle, which, &stream, &context));
    TRY(forbid_while_capturing(*context, *stream));
    TRY(unsafe_during_capture());
    for (const OpId op : unfinished_in(*context, *stream)) context->engine->wait(op);
    trim_pools(*context);
    return check_context(*context);
}

// The answer is read off the stream and its context.
template <class Answer, class Read>
CUresult ask(CUstream handle, DefaultStream which, Answer* answer, Read&& read) {
    if (!answer) return CUDA_ERROR_INVALID_VALUE;
    StreamRef stream;
    ContextRef context;
    TRY(find_stream(handle, which, &stream, &context));
    *answer = read(*stream, *context);
    return CUDA_SUCCESS;
}

// The green context that a stream is of: for a default stream, the one that is current.
GreenRef green_for(const Stream& stream) {
    return stream.kind == StreamKind::created ? stream.green : green_of(top_context());
}

CUcontext context_handle(const Stream& stream, const Context& context) {
    const GreenRef green = green_for(stream);
    return green ? green->context : context.handle;
}

CUresult context_and_green(CUstream handle, CUcontext* context, CUgreenCtx* green, DefaultStream which) {
    if (!green) return CUDA_ERROR_INVALID_VALUE;
    return ask(handle, which, context, [&](const Stream& stream, const Context& of_stream) {
        const GreenRef found = green_for(stream);
        *green = found ? found->handle : nullptr;
        return of_stream.handle;
    });
}

CUresult check_attribute(CUstreamAttrID attribute) {
    switch (attribute) {
        case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
            return CUDA_SUCCESS;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult set_attribute(CUstream handle, CUstreamAttrID attribute, const CUstreamAttrValue* value, DefaultStream which) {
    if (!value) return CUDA_ERROR_INVALID_VALUE;
    TRY(check_attribute(attribute));
    StreamRef stream;
    ContextRef context;
    TRY(find_stream(handle, which, &stream, &context));
    const std::lock_guard<std::mutex> lock(context->mutex);
    stream->attributes[attribute] = *value;
    return CUDA_SUCCESS;
}

CUresult get_attribute(CUstream handle, CUstreamAttrID attribute, CUstreamAttrValue* value, DefaultStream which) {
    if (!value) return CUDA_ERROR_INVALID_VALUE;
    TRY(check_attribute(attribute));
    StreamRef stream;
    ContextRef context;
    TRY(find_stream(handle, which, &stream, &context));
    const std::lock_guard<std::mutex> lock(context->mutex);
    const auto found = stream->attributes.find(attribute);
    *value = CUstreamAttrValue{};
    if (found != stream->attributes.end()) {
        *value = found->second;
    } else if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
        value->priority = stream->priority;
    } else if (attribute == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY) {
        value->syncPolicy = CU_SYNC_POLICY_AUTO;
    }
    return CUDA_SUCCESS;
}

CUresult copy_attributes(CUstream to, CUstream from, DefaultStream which) {
    StreamRef target, source;
    ContextRef target_context, source_context;
    TRY(find_stream(to, which, &target, &target_context));
    TRY(find_stream(from, which, &source, &source_context));
    if (target_context != source_context) return CUDA_ERROR_INVALID_CONTEXT;
    const std::lock_guard<std::mutex> lock(target_context->mutex);
    target->attributes = source->attributes;
    return CUDA_SUCCESS;
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

DRIVER_API cuStreamCreate(CUstream* stream, unsigned int flags) {
    return entry([&] { return create(stream, flags, 0); });
}
DRIVER_API cuStreamCreateWithPriority(CUstream* stream, unsigned int flags, int priority) {
    return entry([&] { return create(stream, flags, priority); });
}
DRIVER_API cuStreamDestroy_v2(CUstream stream) {
    return entry([&] { return destroy_stream(stream); });
}
PLAIN_AND_PTSZ(cuStreamQuery, (CUstream stream), query(stream, which))
PLAIN_AND_PTSZ(cuStreamSynchronize, (CUstream stream), synchronize_stream(stream, which))
PLAIN_AND_PTSZ(cuStreamGetPriority, (CUstream stream, int* priority),
               ask(stream, which, priority, [](const Stream& s, const Context&) { return s.priority; }))
PLAIN_AND_PTSZ(cuStreamGetFlags, (CUstream stream, unsigned int* flags),
               ask(stream, which, flags, [](const Stream& s, const Context&) { return s.flags; }))
PLAIN_AND_PTSZ(cuStreamGetId, (CUstream stream, unsigned long long* id),
               ask(stream, which, id, [](const Stream& s, const Context&) { return s.id; }))
PLAIN_AND_PTSZ(cuStreamGetDevice, (CUstream stream, CUdevice* device),
               ask(stream, which, device, [](const Stream&, const Context& c) { return c.device; }))
PLAIN_AND_PTSZ(cuStreamGetCtx, (CUstream stream, CUcontext* context), ask(stream, which, context, context_handle))
PLAIN_AND_PTSZ(cuStreamGetCtx_v2, (CUstream stream, CUcontext* context, CUgreenCtx* green),
               context_and_green(stream, context, green, which))
PLAIN_AND_PTSZ(cuStreamSetAttribute, (CUstream stream, CUstreamAttrID attribute, const CUstreamAttrValue* value),
               set_attribute(stream, attribute, value, which))
PLAIN_AND_PTSZ(cuStreamGetAttribute, (CUstream stream, CUstreamAttrID attribute, CUstreamAttrValue* value),
               get_attribute(stream, attribute, value, which))
PLAIN_AND_PTSZ(cuStreamCopyAttributes, (CUstream to, CUstream from), copy_attributes(to, from, which))
