#include "softgpu/event.h"

namespace softgpu {
namespace {

Registry<Event, CUevent>& events() {
    static auto& registry = *new Registry<Event, CUevent>(3);
    return registry;
}

// Of an event that is gone the driver says that its context is, even where that lives.
CUresult unknown_event(CUevent handle) {
    return events().was_issued(handle) ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace

EventRef make_event(const ContextRef& context, unsigned flags) {
    auto event = std::make_shared<Event>();
    event->flags = flags;
    event->context = context;
    event->handle = events().issue();
    events().put(event->handle, event);
    return event;
}

CUresult find_event(CUevent handle, EventRef* event) {
    *event = events().find(handle);
    if (!*event) return unknown_event(handle);
    const ContextRef context = (*event)->context.lock();
    return context ? check_context(*context) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult destroy_event(CUevent handle) { return events().remove(handle) ? CUDA_SUCCESS : unknown_event(handle); }

std::shared_ptr<Recording> recording_of(Event& event) {
    const std::lock_guard<std::mutex> lock(event.mutex);
    return event.recording;
}

OpId record_event(const ContextRef& context, QueueId queue, Event& event, const std::vector<OpId>& after) {
    auto recording = std::make_shared<Recording>();
    recording->context = context;
    // The engine holds the effect, and the context the engine: a recording of its own here would be a circle.
    const std::weak_ptr<Recording> target = recording;
    recording->op = context->engine->submit(
        queue, model::Work{},
        [target](const Timing& timing) {
            if (const auto record = target.lock()) record->at_us.store(timing.end_us);
            return 0;
        },
        after);
    const OpId op = recording->op;
    const std::lock_guard<std::mutex> lock(event.mutex);
    event.recording = std::move(recording);
    event.capture = nullptr;
    event.captured_after.clear();
    return op;
}

OpId wait_event(const ContextRef& context, QueueId queue, Event& event, std::vector<OpId> after) {
    const auto recording = recording_of(event);
    const bool elsewhere = recording && recording->context != context;
    if (!recording || (elsewhere && recording->done())) {
        return after.empty() ? 0 : context->engine->submit(queue, model::Work{}, nullptr, after);
    }
    if (elsewhere) {
        return context->engine->submit_wait(queue, [recording] { return recording->done(); }, after);
    }
    after.push_back(recording->op);
    return context->engine->submit(queue, model::Work{}, nullptr, after);
}

void forget_events_of(Context& context) {
    events().remove_if([&](const Event& event) { return event.context.lock().get() == &context; });
}

}  // namespace softgpu
