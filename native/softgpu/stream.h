// Streams: queues of the device with CUDA's ordering rules on top.
#pragma once

#include "softgpu/context.h"
#include "softgpu/graph.h"

namespace softgpu {

constexpr int lowest_priority = 0, highest_priority = -5;

enum class StreamKind { legacy, per_thread, created };

struct Stream {
    CUstream handle = nullptr;
    StreamKind kind = StreamKind::created;
    unsigned flags = 0;
    int priority = 0;
    QueueId queue = 0;
    std::weak_ptr<Context> context;
    GreenRef green;  // null: of the context itself

    std::mutex order;  // held over submissions that must stay together: only submitters to this stream need it

    // The graph being captured here, and what the next captured operation comes after. Guarded by graph_lock().
    std::shared_ptr<Capture> capture;
    std::vector<Edge> frontier;
};

StreamRef open_stream(const ContextRef& context, StreamKind kind, unsigned flags, int priority,
                      const GreenRef& green = nullptr);
// The stream that a caller means, and its context, alive and well.
CUresult find_stream(CUstream handle, DefaultStream which, StreamRef* stream, ContextRef* context);
// Submits to a stream that does not capture; `stream.order` is held by the caller.
OpId submit(Context& context, Stream& stream, const Operation& operation, std::vector<OpId> after = {});
OpId submit_to(Engine& engine, QueueId queue, const Operation& operation, const std::vector<OpId>& after);
// What an operation put into the stream now has to come after, in other streams: the legacy stream's rule.
std::vector<OpId> implicit_order(Context& context, Stream& stream);
// The operations to wait for so that all that was put into the stream, or into the context, is done.
std::vector<OpId> unfinished_in(Context& context, Stream& stream);
std::vector<OpId> unfinished_in(Context& context);
StreamRef take_stream(CUstream handle);  // unknown from now on; null: it is already
void close_stream(Stream& stream);       // what was submitted still completes
// It is being destroyed. The handles stay known, so that using one is told from using what never was.
void forget_streams_of(Context& context);

}  // namespace softgpu
