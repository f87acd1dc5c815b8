#include "softgpu/enqueue.h"

#include "softgpu/capture.h"

namespace softgpu {

CUresult enqueue_work(CUstream handle, DefaultStream which, StreamWork work, OpId* done) {
    StreamRef stream;
    ContextRef context;
    TRY(find_stream(handle, which, &stream, &context));
    if (done) *done = 0;
    bool captured = false;
    TRY(capture_instead(*context, *stream, work.node, &captured));
    if (captured) return CUDA_SUCCESS;
    OpId last = 0;
    const std::lock_guard<std::mutex> lock(stream->order);
    for (const Operation& step : work.steps) last = submit(*context, *stream, step);
    if (done) *done = last;
    return CUDA_SUCCESS;
}

CUresult enqueue(CUstream stream, DefaultStream which, Operation operation, OpId* done) {
    StreamWork work;
    work.node = node_from(operation);
    work.steps.push_back(std::move(operation));
    return enqueue_work(stream, which, std::move(work), done);
}

CUresult enqueue_and_wait(CUstream handle, DefaultStream which, Operation operation) {
    StreamRef stream;
    ContextRef context;
    TRY(find_stream(handle, which, &stream, &context));
    TRY(forbid_while_capturing(*context, *stream));
    OpId op = 0;
    {
        const std::lock_guard<std::mutex> lock(stream->order);
        op = submit(*context, *stream, operation);
    }
    context->engine->wait(op);
    return check_context(*context);
}

}  // namespace softgpu
