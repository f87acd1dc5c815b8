#include "softgpu/stream.h"

#include <algorithm>

namespace softgpu {
namespace {

Registry<Stream, CUstream>& streams() {
    static auto& registry = *new Registry<Stream, CUstream>(2);
    return registry;
}

bool blocking(const Stream& stream) {
    return stream.kind != StreamKind::legacy && !(stream.flags & CU_STREAM_NON_BLOCKING);
}

// One per thread and context, made when first used, closed with the thread.
struct ThreadStreams {
    std::map<CUcontext, StreamRef> of;
    ~ThreadStreams() {
        if (check_initialised() != CUDA_SUCCESS) return;
        for (const auto& [context, stream] : of) close_stream(*stream);
    }
};

StreamRef thread_stream(const ContextRef& context) {
    thread_local ThreadStreams mine;
    StreamRef& stream = mine.of[context->handle];
    if (!stream || stream->context.lock() != context) {
        stream = open_stream(context, StreamKind::per_thread, CU_STREAM_DEFAULT, 0);
    }
    return stream;
}

}  // namespace

void close_stream(Stream& stream) {
    const ContextRef context = stream.context.lock();
    if (!context || context->destroyed.load()) return;
    const std::lock_guard<std::mutex> lock(context->mutex);
    auto& open = context->streams;
    const auto found = std::find_if(open.begin(), open.end(), [&](const StreamRef& s) { return s.get() == &stream; });
    if (found == open.end()) return;
    auto& closing = context->closing;
    Engine& engine = *context->engine;
    closing.erase(std::remove_if(closing.begin(), closing.end(), [&](OpId op) { return engine.done(op); }),
                  closing.end());
    closing.push_back(engine.last(stream.queue));
    engine.close_queue(stream.queue);
    open.erase(found);
}

StreamRef take_stream(CUstream handle) { return streams().remove(handle); }

StreamRef open_stream(const ContextRef& context, StreamKind kind, unsigned flags, int priority, const GreenRef& green) {
    auto stream = std::make_shared<Stream>();
    stream->kind = kind;
    stream->flags = flags;
    stream->priority = std::clamp(priority, highest_priority, lowest_priority);
    stream->context = context;
    stream->green = green;
    stream->queue = context->engine->open_queue(stream->priority);
    if (kind == StreamKind::legacy) {
        stream->handle = CU_STREAM_LEGACY;
        return stream;
    }
    stream->handle = kind == StreamKind::per_thread ? CU_STREAM_PER_THREAD : streams().issue();
    {
        const std::lock_guard<std::mutex> lock(context->mutex);
        context->streams.push_back(stream);
    }
    if (kind == StreamKind::created) streams().put(stream->handle, stream);
    return stream;
}

CUresult find_stream(CUstream handle, DefaultStream which, StreamRef* stream, ContextRef* context) {
    const bool thread_default = handle == CU_STREAM_PER_THREAD || (!handle && which == DefaultStream::per_thread);
    if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        TRY(current_context(context));
        if (thread_default && green_of(top_context())) return CUDA_ERROR_INVALID_HANDLE;
        *stream = thread_default ? thread_stream(*context) : (*context)->legacy;
        return CUDA_SUCCESS;
    }
    *stream = streams().find(handle);
    if (!*stream) return CUDA_ERROR_INVALID_HANDLE;
    if ((*stream)->green && (*stream)->green->destroyed.load()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *context = (*stream)->context.lock();
    return *context ? check_context(**context) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

std::vector<OpId> implicit_order(Context& context, Stream& stream) {
    Engine& engine = *context.engine;
    std::vector<OpId> after;
    const auto add = [&](const Stream& other) {
        if (const OpId op = engine.last(other.queue)) after.push_back(op);
    };
    if (stream.kind == StreamKind::legacy) {
        const std::lock_guard<std::mutex> lock(context.mutex);
        for (const StreamRef& other : context.streams) {
            if (blocking(*other)) add(*other);
        }
    } else if (blocking(stream)) {
        add(*context.legacy);
    }
    return after;
}

std::vector<OpId> unfinished_in(Context& context, Stream& stream) {
    std::vector<OpId> operations;
    if (stream.kind == StreamKind::legacy) operations = implicit_order(context, stream);
    operations.push_back(context.engine->last(stream.queue));
    return operations;
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

OpId submit(Context& context, Stream& stream, const Operation& operation, std::vector<OpId> after) {
    const std::vector<OpId> implicit = implicit_order(context, stream);
    after.insert(after.end(), implicit.begin(), implicit.end());
    return submit_to(*context.engine, stream.queue, operation, after);
}

OpId submit_to(Engine& engine, QueueId queue, const Operation& operation, const std::vector<OpId>& after) {
    if (operation.until) return engine.submit_wait(queue, operation.until, after);
    if (operation.host_call) return engine.submit_host(queue, operation.host_call, after);
    return engine.submit(queue, operation.work, operation.effect, after);
}

void forget_streams_of(Context& context) {
    const std::lock_guard<std::mutex> lock(context.mutex);
    context.streams.clear();
}

}  // namespace softgpu
