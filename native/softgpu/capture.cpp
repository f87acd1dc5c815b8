#include "softgpu/capture.h"

#include <algorithm>
#include <set>

#include "softgpu/stream.h"

namespace softgpu {
namespace {

using CaptureRef = std::shared_ptr<Capture>;
using Lock = std::lock_guard<std::mutex>;

// Read without the lock so that the launch path pays nothing while no one captures.
std::atomic<int> open_count{0};
thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

std::vector<CaptureRef>& open_captures() {
    static auto& all = *new std::vector<CaptureRef>;
    return all;
}

CUresult begin(CUstream handle, CUstreamCaptureMode mode, DefaultStream which, GraphRef target,
               std::vector<Edge> frontier) {
    if (mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
    StreamRef stream;
    ContextRef context;
    TRY(find_stream(handle, which, &stream, &context));
    if (stream->kind == StreamKind::legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    const Lock lock(graph_lock());
    if (stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
    auto capture = std::make_shared<Capture>();
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    capture->graph_is_callers = target != nullptr;
    capture->graph = target ? target : make_graph();
    capture->origin = stream.get();
    capture->members.push_back(stream);
    stream->capture = capture;
    stream->frontier = std::move(frontier);
    open_captures().push_back(capture);
    open_count.fetch_add(1);
    return CUDA_SUCCESS;
}

void finish(const CaptureRef& capture) {
    capture->ended = true;
    for (const auto& member : capture->members) {
        if (const StreamRef stream = member.lock()) {
            stream->capture = nullptr;
            stream->frontier.clear();
        }
    }
    auto& open = open_captures();
    open.erase(std::remove(open.begin(), open.end(), capture), open.end());
    open_count.fetch_sub(1);
}

void discard(const CaptureRef& capture) {
    finish(capture);
    if (!capture->graph_is_callers) remove_graph(capture->graph);
}

bool all_joined(const Capture& capture) {
    std::set<const Node*> reached;
    std::vector<const Node*> ahead;
    for (const Edge& edge : capture.origin->frontier) ahead.push_back(edge.from.get());
    while (!ahead.empty()) {
        const Node* node = ahead.back();
        ahead.pop_back();
        if (!reached.insert(node).second) continue;
        for (const Edge& edge : node->after) ahead.push_back(edge.from.get());
    }
    for (const auto& member : capture.members) {
        const StreamRef stream = member.lock();
        if (!stream || stream.get() == capture.origin) continue;
        for (const Edge& edge : stream->frontier) {
            if (!reached.count(edge.from.get())) return false;
        }
    }
    return true;
}

CUresult end(CUstream handle, CUgraph* out, DefaultStream which) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = nullptr;
    StreamRef stream;
    ContextRef context;
    TRY(find_stream(handle, which, &stream, &context));
    const Lock lock(graph_lock());
    const CaptureRef capture = stream->capture;
    if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != std::this_thread::get_id()) {
        discard(capture);
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    }
    if (capture->origin != stream.get()) {
        capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    const bool invalid = capture->invalid, joined = all_joined(*capture);
    if (invalid || !joined) {
        discard(capture);
        return invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    }
    finish(capture);
    *out = capture->graph->handle;
    return CUDA_SUCCESS;
}

CUresult still_valid(const Capture& capture) {
    return capture.invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

// Work in the legacy stream would wait for the blocking streams: it cannot wait for one that captures.
CUresult forbid_implicit(Context& context, const Stream& stream) {
    if (stream.kind != StreamKind::legacy) return CUDA_SUCCESS;
    bool refused = false;
    const Lock lock(context.mutex);
    for (const StreamRef& other : context.streams) {
        if (!other->capture || other->flags & CU_STREAM_NON_BLOCKING) continue;
        other->capture->invalid = true;
        refused = true;
    }
    return refused ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

void append(Stream& stream, NodeBody body) {
    const NodeRef node = add_node(*stream.capture->graph, std::move(body), stream.frontier);
    stream.frontier = {Edge{node, {}}};
}

void merge(std::vector<Edge>& frontier, const std::vector<Edge>& more) {
    for (const Edge& edge : more) {
        const auto same = [&](const Edge& have) { return have.from == edge.from; };
        if (std::none_of(frontier.begin(), frontier.end(), same)) frontier.push_back(edge);
    }
}

CUresult exchange_mode(CUstreamCaptureMode* mode) {
    if (!mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
    std::swap(*mode, thread_mode);
    return CUDA_SUCCESS;
}

CUstreamCaptureStatus status_of(const Stream& stream) {
    if (!stream.capture) return CU_STREAM_CAPTURE_STATUS_NONE;
    return stream.capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

CUresult capture_status(CUstream handle, CUstreamCaptureStatus* status, DefaultStream which) {
    if (!status) return CUDA_ERROR_INVALID_VALUE;
    StreamRef stream;
    ContextRef context;
    TRY(find_stream(handle, which, &stream, &context));
    const Lock lock(graph_lock());
    TRY(forbid_implicit(*context, *stream));
    *status = status_of(*stream);
    return CUDA_SUCCESS;
}

CUresult begin_to_graph(CUstream stream, CUgraph graph_handle, const CUgraphNode* nodes, const CUgraphEdgeData* data,
                        size_t count, CUstreamCaptureMode mode, DefaultStream which) {
    GraphRef graph;
    std::vector<Edge> edges;
    {
        const Lock lock(graph_lock());
        graph = graph_from(graph_handle);
        if (!graph) return CUDA_ERROR_INVALID_VALUE;
        TRY(edges_from(*graph, nodes, data, count, &edges));
    }
    return begin(stream, mode, which, std::move(graph), std::move(edges));
}

}  // namespace

CUresult capture_instead(Context& context, Stream& stream, const NodeBody& body, bool* captured) {
    *captured = false;
    if (open_count.load(std::memory_order_acquire) == 0) return CUDA_SUCCESS;
    const Lock lock(graph_lock());
    if (!stream.capture) return forbid_implicit(context, stream);
    TRY(still_valid(*stream.capture));
    append(stream, body);
    *captured = true;
    return CUDA_SUCCESS;
}

CUresult capture_record(Context& context, Stream& stream, const EventRef& event, bool* captured) {
    *captured = false;
    if (open_count.load(std::memory_order_acquire) == 0) return CUDA_SUCCESS;
    const Lock lock(graph_lock());
    if (!stream.capture) return forbid_implicit(context, stream);
    TRY(still_valid(*stream.capture));
    *captured = true;
    const Lock event_lock(event->mutex);
    event->recording = nullptr;
    event->capture = stream.capture;
    event->captured_after = stream.frontier;
    return CUDA_SUCCESS;
}

CUresult capture_wait(Context& context, const StreamRef& stream, const EventRef& event, bool* captured) {
    *captured = false;
    const Lock lock(graph_lock());
    const Lock event_lock(event->mutex);
    const CaptureRef theirs = event->capture;
    if (!stream->capture && !theirs) return forbid_implicit(context, *stream);
    if (stream->capture) TRY(still_valid(*stream->capture));
    *captured = true;
    if (!theirs) {
        if (!event->recording) return CUDA_SUCCESS;
        stream->capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (theirs->ended) return CUDA_ERROR_INVALID_VALUE;
    TRY(still_valid(*theirs));
    if (!stream->capture) {
        if (stream->kind == StreamKind::legacy) {
            theirs->invalid = true;
            return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
        stream->capture = theirs;
        stream->frontier.clear();
        theirs->members.push_back(stream);
    } else if (stream->capture != theirs) {
        stream->capture->invalid = theirs->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    merge(stream->frontier, event->captured_after);
    return CUDA_SUCCESS;
}

CUresult forbid_while_capturing(Context& context, Stream& stream) {
    if (open_count.load(std::memory_order_acquire) == 0) return CUDA_SUCCESS;
    const Lock lock(graph_lock());
    if (!stream.capture) return forbid_implicit(context, stream);
    TRY(still_valid(*stream.capture));
    stream.capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult forbid_while_capturing(Context& context) {
    if (open_count.load(std::memory_order_acquire) == 0) return CUDA_SUCCESS;
    const Lock lock(graph_lock());
    const Lock context_lock(context.mutex);
    bool refused = false;
    for (const StreamRef& stream : context.streams) {
        if (!stream->capture) continue;
        stream->capture->invalid = true;
        refused = true;
    }
    return refused ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult forbid_captured(Event& event) {
    const Lock lock(graph_lock());
    const Lock event_lock(event.mutex);
    if (!event.capture) return CUDA_SUCCESS;
    if (event.capture->ended) return CUDA_ERROR_INVALID_VALUE;
    event.capture->invalid = true;
    return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult unsafe_during_capture() {
    if (open_count.load(std::memory_order_acquire) == 0) return CUDA_SUCCESS;
    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
    const Lock lock(graph_lock());
    bool refused = false;
    for (const CaptureRef& capture : open_captures()) {
        const bool mine = capture->thread == std::this_thread::get_id();
        const bool global =
            capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED || !(mine || global)) continue;
        capture->invalid = true;
        refused = true;
    }
    return refused ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

void leave_capture(Stream& stream) {
    const Lock lock(graph_lock());
    if (!stream.capture) return;
    stream.capture->invalid = true;
    if (stream.capture->origin == &stream) discard(CaptureRef(stream.capture));
}

void abandon_captures_of(Context& context) {
    const Lock lock(graph_lock());
    const std::vector<CaptureRef> open = open_captures();
    for (const CaptureRef& capture : open) {
        if (capture->origin->context.lock().get() == &context) discard(capture);
    }
}

}  // namespace softgpu

using namespace softgpu;

PLAIN_AND_PTSZ(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode),
               begin(stream, mode, which, nullptr, {}))
PLAIN_AND_PTSZ(cuStreamBeginCaptureToGraph,
               (CUstream stream, CUgraph graph, const CUgraphNode* nodes, const CUgraphEdgeData* data, size_t count,
                CUstreamCaptureMode mode),
               begin_to_graph(stream, graph, nodes, data, count, mode, which))
PLAIN_AND_PTSZ(cuStreamEndCapture, (CUstream stream, CUgraph* graph), end(stream, graph, which))
PLAIN_AND_PTSZ(cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus* status),
               capture_status(stream, status, which))
ENTRY(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode), exchange_mode(mode))
