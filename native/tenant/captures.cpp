#include "tenant/captures.h"

#include <new>

#include "tenant/fork.h"

namespace tenant {

Captures captures;

namespace {

void forget_in_child() { captures.abandon(); }
LISTEN(AtFork, ForkStep::captures, forget_in_child)

// Never another thread's, whatever the C library does with the numbers of those that have ended.
uint64_t own_thread() {
    static std::atomic<uint64_t> last{0};
    thread_local const uint64_t own = last.fetch_add(1) + 1;
    return own;
}

}  // namespace

void Captures::add(StreamKey stream, CUcontext context, CUstreamCaptureMode mode) {
    // A stream captures once at a time: an earlier one that is still here has ended unseen.
    remove(find(stream));
    auto* open = new (std::nothrow) Open{++last_number_, stream, context, mode, own_thread(), first_};
    if (!open) return;
    first_ = open;
    count_.fetch_add(1, std::memory_order_release);
}

uint64_t Captures::find(StreamKey stream) const {
    for (const Open* open = first_; open; open = open->next)
        if (open->stream == stream) return open->number;
    return 0;
}

template <class Is>
void Captures::remove_if(Is&& is) {
    for (Open** place = &first_; Open* open = *place;) {
        if (!is(*open)) {
            place = &open->next;
            continue;
        }
        *place = open->next;
        delete open;
        count_.fetch_sub(1, std::memory_order_release);
    }
}

void Captures::remove(uint64_t number) {
    remove_if([&](const Open& open) { return open.number == number; });
}

void Captures::remove_all_of(CUcontext context) {
    remove_if([&](const Open& open) { return open.context == context; });
}

bool Captures::refuse(CUstreamCaptureMode mode) const {
    if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
    for (const Open* open = first_; open; open = open->next) {
        if (open->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
        bool concerns_all = open->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (concerns_all || open->thread == own_thread()) return true;
    }
    return false;
}

void Captures::abandon() {
    first_ = nullptr;
    count_.store(0);
}

bool is_captured(CUstream stream, bool per_thread_default) {
    if (!capture_is_open()) return false;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (!stream && per_thread_default) stream = CU_STREAM_PER_THREAD;
    return driver.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace tenant
