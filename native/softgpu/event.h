// Events: a point of a stream, its time, or a point of a graph being captured.
#pragma once

#include "softgpu/context.h"
#include "softgpu/graph.h"

namespace softgpu {

// One record of an event; a later one leaves it alone, so that what waits for it goes on waiting for the right thing.
struct Recording {
    ContextRef context;
    OpId op = 0;
    std::atomic<double> at_us{0};

    bool done() const { return context->destroyed.load() || context->engine->done(op); }
};

struct Event;
using EventRef = std::shared_ptr<Event>;

struct Event {
    CUevent handle = nullptr;
    unsigned flags = 0;
    std::weak_ptr<Context> context;

    std::mutex mutex;  // guards the rest
    std::shared_ptr<Recording> recording;
    // Set instead when it was last recorded in a capture.
    std::shared_ptr<Capture> capture;
    std::vector<Edge> captured_after;
};

EventRef make_event(const ContextRef& context, unsigned flags);
CUresult find_event(CUevent handle, EventRef* event);  // one whose context is alive and well
CUresult destroy_event(CUevent handle);
std::shared_ptr<Recording> recording_of(Event& event);  // the last one; null: none, or in a capture
// Records into a queue now; the context is the queue's.
OpId record_event(const ContextRef& context, QueueId queue, Event& event, const std::vector<OpId>& after);
// Makes the queue wait for the event's last recording, if it has one.
OpId wait_event(const ContextRef& context, QueueId queue, Event& event, std::vector<OpId> after);
void forget_events_of(Context& context);

}  // namespace softgpu
