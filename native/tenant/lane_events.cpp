#include "tenant/lane_events.h"

#include "tenant/captures.h"
#include "tenant/context.h"
#include "tenant/green_contexts.h"
#include "tenant/relaxed.h"

namespace tenant {

namespace {

//    63                          16 15     8 7      0
//   ┌──────────────────────────────┬────────┬────────┐   lane: 1 + its number; 0: nobody has recorded the event
//   │      of the event's hash     │  GPU   │  lane  │
//   └──────────────────────────────┴────────┴────────┘
struct Recorded {
    int gpu;
    Membership* lane;  // null: none
};

class RecordedEvents {
 public:
    void note(CUevent event, uint32_t lane, int gpu) {
        uint64_t hash = hash_of(event);
        place_of(hash).store((hash & kHash) | static_cast<uint64_t>(gpu & 0xff) << 8 | lane);
    }
    void forget(CUevent event) {
        uint64_t hash = hash_of(event);
        std::atomic<uint64_t>& place = place_of(hash);
        uint64_t there = place.load();
        if (((there ^ hash) & kHash) == 0) place.compare_exchange_strong(there, 0);
    }
    Recorded find(CUevent event) {
        uint64_t hash = hash_of(event), there = place_of(hash).load();
        auto lane = static_cast<uint32_t>(there & 0xff);
        if (!lane || (there ^ hash) & kHash) return {0, nullptr};
        return {static_cast<int>(there >> 8 & 0xff), Membership::lane_if_joined(lane - 1)};
    }

 private:
    static constexpr uint64_t kHash = ~uint64_t{0xffff};
    static uint64_t hash_of(CUevent event) {
        uint64_t mixed = reinterpret_cast<uintptr_t>(event) * 0xff51afd7ed558ccdu;
        return mixed ^ mixed >> 32;
    }
    std::atomic<uint64_t>& place_of(uint64_t hash) { return places_[hash >> 16 & 1023]; }

    std::atomic<uint64_t> places_[1024]{};
} recorded_events;

bool is_default(CUstream stream) { return reinterpret_cast<uintptr_t>(stream) <= 2; }

// Whom a stream belongs to, or will with the next launch of this thread.
Membership* tenant_of(Membership* own, CUstream stream) {
    if (is_default(stream)) return own;  // for good: see lanes.h
    Membership* holder = holder_of(key_of_stream(stream));
    return holder ? holder : Membership::of_thread(own);
}

}  // namespace

void note_recorded(CUevent event, CUstream stream) {
    uint32_t lanes = Membership::lanes_open();
    for (uint32_t i = 0; i < lanes && !is_default(stream); ++i) {
        Membership* lane = Membership::lane_if_joined(i);
        StreamState* state = lane ? lane->streams.find(key_of_stream(stream)) : nullptr;
        // An event of a capture stands for a node of its graph.
        if (state && !is_captured(stream, false)) return recorded_events.note(event, i + 1, state->gpu);
    }
    recorded_events.forget(event);
}

void WaitingForEvent::begin(CUstream stream, CUevent event, bool per_thread_default) {
    Membership* own = Membership::current_if_joined();
    Recorded recorded = recorded_events.find(event);
    if (!own || !recorded.lane || is_captured(stream, per_thread_default)) return;
    // One that passes gates itself has no more right to the GPU than its gate gives it.
    Membership* waiting = tenant_of(own, stream);
    if (waiting == recorded.lane || passes_gates(*waiting) || !passes_gates(*recorded.lane)) return;
    // While a capture is open, the question could end it; and one may begin now.
    bool has_passed = false;
    if (!capture_is_open()) {
        Relaxed relaxed;
        has_passed = driver.cuEventQuery(event) == CUDA_SUCCESS;
    }
    if (has_passed) return;
    stream_ = stream;
    if (is_default(stream))
        stream_ =
            stream == CU_STREAM_PER_THREAD || (!stream && per_thread_default) ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
    waits_ = true;
    through_.begin(*recorded.lane, recorded.gpu);
}

void WaitingForEvent::complete() {
    CUcontext context = is_default(stream_) ? current_context() : owner_of(stream_);
    // The wait has perhaps made the stream part of a capture: then the word is not written.
    through_.complete(stream_, is_captured(stream_, false) ? nullptr : context);
}

}  // namespace tenant
