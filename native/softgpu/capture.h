// Captures: streams whose work becomes a graph instead of running, and what may not be called meanwhile.
#pragma once

#include <thread>

#include "softgpu/context.h"
#include "softgpu/event.h"
#include "softgpu/graph.h"

namespace softgpu {

// One sequence, over all the streams that joined it. Guarded by graph_lock().
struct Capture {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    std::thread::id thread;
    GraphRef graph;
    bool graph_is_callers = false;  // begun with cuStreamBeginCaptureToGraph
    Stream* origin = nullptr;
    std::vector<std::weak_ptr<Stream>> members;
    bool invalid = false;
    bool ended = false;
};

// Adds the node if the stream captures, and says so; refuses legacy work that would depend on a capture.
CUresult capture_instead(Context& context, Stream& stream, const NodeBody& body, bool* captured);
CUresult capture_record(Context& context, Stream& stream, const EventRef& event, bool* captured);
// A wait for an event of a capture draws the stream into it.
CUresult capture_wait(Context& context, const StreamRef& stream, const EventRef& event, bool* captured);

// Calls that ask for the state of work. Those that fail end the captures they touch.
CUresult forbid_while_capturing(Context& context, Stream& stream);
CUresult forbid_while_capturing(Context& context);  // any stream of it
CUresult forbid_captured(Event& event);

void leave_capture(Stream& stream);  // it is being destroyed
void abandon_captures_of(Context& context);

}  // namespace softgpu
