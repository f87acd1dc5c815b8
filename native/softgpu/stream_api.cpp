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

CUresult destroy(CUstream handle) {
    if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) return CUDA_ERROR_INVALID_HANDLE;
    const StreamRef stream = take_stream(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    const ContextRef context = stream->context.lock();
    if (!context || context->destroyed.load()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    leave_capture(*stream);
    close_stream(*stream);
    return stream->green && stream->green->destroyed.load() ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
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

}  // namespace
}  // namespace softgpu

using namespace softgpu;

ENTRY(cuStreamCreate, (CUstream * stream, unsigned int flags), create(stream, flags, 0))
ENTRY(cuStreamCreateWithPriority, (CUstream * stream, unsigned int flags, int priority),
      create(stream, flags, priority))
ENTRY(cuStreamDestroy_v2, (CUstream stream), destroy(stream))
PLAIN_AND_PTSZ(cuStreamQuery, (CUstream stream), query(stream, which))
PLAIN_AND_PTSZ(cuStreamSynchronize, (CUstream stream), synchronize_stream(stream, which))
PLAIN_AND_PTSZ(cuStreamGetPriority, (CUstream stream, int* priority),
               ask(stream, which, priority, [](const Stream& s, const Context&) { return s.priority; }))
PLAIN_AND_PTSZ(cuStreamGetFlags, (CUstream stream, unsigned int* flags),
               ask(stream, which, flags, [](const Stream& s, const Context&) { return s.flags; }))
PLAIN_AND_PTSZ(cuStreamGetCtx, (CUstream stream, CUcontext* context), ask(stream, which, context, context_handle))
PLAIN_AND_PTSZ(cuStreamGetCtx_v2, (CUstream stream, CUcontext* context, CUgreenCtx* green),
               context_and_green(stream, context, green, which))
