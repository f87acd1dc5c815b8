// cuEvent*, cuCtxRecordEvent and cuStreamWaitEvent.
#include "softgpu/capture.h"
#include "softgpu/event.h"
#include "softgpu/stream.h"

namespace softgpu {
namespace {

CUresult create(CUevent* out, unsigned flags) {
    constexpr unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    if (!out || flags & ~known) return CUDA_ERROR_INVALID_VALUE;
    if ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING)) return CUDA_ERROR_INVALID_VALUE;
    ContextRef context;
    TRY(current_context(&context));
    *out = make_event(context, flags)->handle;
    return CUDA_SUCCESS;
}

CUresult record(CUevent handle, CUstream stream_handle, DefaultStream which) {
    EventRef event;
    TRY(find_event(handle, &event));
    StreamRef stream;
    ContextRef context;
    TRY(find_stream(stream_handle, which, &stream, &context));
    if (event->context.lock() != context) return CUDA_ERROR_INVALID_HANDLE;
    bool captured = false;
    TRY(capture_record(*context, *stream, event, &captured));
    if (captured) return CUDA_SUCCESS;
    const std::lock_guard<std::mutex> lock(stream->order);
    record_event(context, stream->queue, *event, implicit_order(*context, *stream));
    return CUDA_SUCCESS;
}

// All that the context has been given so far, in whichever stream.
CUresult record_context(CUcontext context_handle, CUevent handle) {
    const ContextRef context = context_from(context_handle);
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    TRY(check_context(*context));
    EventRef event;
    TRY(find_event(handle, &event));
    if (event->context.lock() != context) return CUDA_ERROR_INVALID_HANDLE;
    TRY(forbid_while_capturing(*context));
    const std::vector<OpId> after = unfinished_in(*context);
    QueueId queue = 0;
    {
        const std::lock_guard<std::mutex> lock(context->mutex);
        if (!context->records) context->records = context->engine->open_queue(lowest_priority);
        queue = context->records;
    }
    record_event(context, queue, *event, after);
    return CUDA_SUCCESS;
}

CUresult wait(CUstream stream_handle, CUevent handle, unsigned flags, DefaultStream which) {
    if (flags & CU_EVENT_WAIT_EXTERNAL) return CUDA_ERROR_NOT_SUPPORTED;
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    StreamRef stream;
    ContextRef context;
    TRY(find_stream(stream_handle, which, &stream, &context));
    EventRef event;
    TRY(find_event(handle, &event));
    bool captured = false;
    TRY(capture_wait(*context, stream, event, &captured));
    if (captured) return CUDA_SUCCESS;
    const std::lock_guard<std::mutex> lock(stream->order);
    wait_event(context, stream->queue, *event, implicit_order(*context, *stream));
    return CUDA_SUCCESS;
}

// Null: there is none.
CUresult find_recording(CUevent handle, std::shared_ptr<Recording>* out) {
    EventRef event;
    TRY(find_event(handle, &event));
    TRY(forbid_captured(*event));
    TRY(unsafe_during_capture());
    *out = recording_of(*event);
    return CUDA_SUCCESS;
}

CUresult query(CUevent handle) {
    std::shared_ptr<Recording> recording;
    TRY(find_recording(handle, &recording));
    if (!recording) return CUDA_SUCCESS;
    const bool done = recording->done();
    TRY(check_context(*recording->context));
    return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult wait_here(CUevent handle) {
    std::shared_ptr<Recording> recording;
    TRY(find_recording(handle, &recording));
    if (!recording) return CUDA_SUCCESS;
    recording->context->engine->wait(recording->op);
    trim_pools(*recording->context);
    return check_context(*recording->context);
}

CUresult elapsed(float* milliseconds, CUevent start_handle, CUevent end_handle) {
    if (!milliseconds) return CUDA_ERROR_INVALID_VALUE;
    EventRef start, end;
    TRY(find_event(start_handle, &start));
    TRY(find_event(end_handle, &end));
    if ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) return CUDA_ERROR_INVALID_HANDLE;
    if (start->context.lock() != end->context.lock()) return CUDA_ERROR_INVALID_HANDLE;
    TRY(forbid_captured(*start));
    TRY(forbid_captured(*end));
    const auto from = recording_of(*start), to = recording_of(*end);
    if (!from || !to) return CUDA_ERROR_INVALID_HANDLE;
    if (!from->done() || !to->done()) return CUDA_ERROR_NOT_READY;
    *milliseconds = static_cast<float>((to->at_us.load() - from->at_us.load()) / 1000);
    return CUDA_SUCCESS;
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

ENTRY(cuEventCreate, (CUevent * event, unsigned int flags), create(event, flags))
PLAIN_AND_PTSZ(cuEventRecord, (CUevent event, CUstream stream), record(event, stream, which))
ENTRY(cuCtxRecordEvent, (CUcontext context, CUevent event), record_context(context, event))
PLAIN_AND_PTSZ(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags),
               wait(stream, event, flags, which))
ENTRY(cuEventQuery, (CUevent event), query(event))
ENTRY(cuEventSynchronize, (CUevent event), wait_here(event))
ENTRY(cuEventElapsedTime, (float* milliseconds, CUevent start, CUevent end), elapsed(milliseconds, start, end))
ENTRY(cuEventElapsedTime_v2, (float* milliseconds, CUevent start, CUevent end), elapsed(milliseconds, start, end))
ENTRY(cuEventDestroy_v2, (CUevent event), destroy_event(event))
