// One process's place in the segment: its slot, its streams and its gates. joining.cpp makes it at the first work, and
// the watcher (watcher.h) owns the slot for as long as the process lives.
#pragma once

#include <atomic>

#include "tenant/breakdown.h"
#include "tenant/captures.h"
#include "tenant/durations.h"
#include "tenant/gpu_pages.h"
#include "tenant/gpu_set.h"
#include "tenant/locked.h"
#include "tenant/progress.h"
#include "tenant/streams.h"
#include "tenant/terms.h"
#include "wire/clock.h"
#include "wire/gates.h"
#include "wire/segment.h"
#include "wire/shared_segment.h"

namespace tenant {

class Membership {
 public:
    // Null: not joined. The first work of a process with a context joins; what cannot join passes through for good.
    static Membership* current() {
        Membership* joined = joined_.load(std::memory_order_acquire);
        return __builtin_expect(joined != nullptr, 1) ? joined : join();
    }
    static Membership* current_if_joined() { return joined_.load(std::memory_order_acquire); }
    static void forget_in_child();

    wire::Segment& segment() { return *segment_; }
    wire::Slot& slot() { return *slot_; }
    int index() const { return index_; }

    // The edge from idle to busy on a GPU: closes the gates of the classes below.
    void become_busy(int gpu);
    // Whether no operation of the burst that waits for SMs was launched yet: a copy in front of them does not.
    bool is_start_untimed(int gpu) const { return untimed_.has(gpu); }
    // Right after it, by the thread that is about to launch into this stream: how long will the burst wait for the GPU?
    void time_start(const StreamState& state);
    // The edge from empty to having work, for one that passes gates: it takes the turn among its equals, or waits.
    void become_ready(int gpu);
    uint64_t burst_began_ns(int gpu) const { return burst_began_ns_[gpu].load(); }
    bool is_leaving() const { return leaving_.load(); }
    // Where a context finds this tenant's gate on its GPU, and the progress words; 0: the driver would not map it.
    struct GatePlaces {
        CUdeviceptr gate, words;
    };
    GatePlaces gate_places(CUcontext context, int gpu);
    // The same for a stream, which remembers it.
    CUdeviceptr gate_of(StreamState& state) {
        CUdeviceptr gate = state.gate;
        return __builtin_expect(gate > kCannotMap, 1) ? gate : map_gate_of(state);
    }
    // The segment's number of a context's GPU; -1: unknown.
    int gpu_of(CUcontext context);
    void mark_end_of_work(StreamState& state);
    // Under the lock, before a context ends and after; in between, nobody of ours uses it.
    int begin_end_of(CUcontext context) {
        streams.remove_if([&](const StreamState& state) { return state.context == context; });
        samples.forget_context(context);
        breakdown.forget_context(context);
        captures.remove_all_of(context);
        return pages_.begin_end_of(context);
    }
    void complete_end(int number) { pages_.complete_end(number); }
    // For an operation that should be timed: a pair of events, or null.
    Samples::Sample* begin_sample(Shape shape, const StreamState& state, float scale);

    // It has not been stopped: for whoever it keeps waiting, by its work or in a line.
    void beat(uint64_t now_ns);

    void lock() { lock_.lock(); }
    bool try_lock() { return lock_.try_lock(); }
    void unlock() { lock_.unlock(); }

    StreamTable streams;
    Durations durations;
    Samples samples;
    Progress progress;
    Breakdown breakdown;
    Terms terms;
    GpuSet used_gpus;  // some stream of this tenant is there
    GpuSet company;    // somebody whom this tenant may have to wait for uses the GPU
    GpuSet below;      // a lower class uses the GPU
    GpuSet bus;        // a higher class has copied between the host and the GPU lately
    // Where a thread copies in pieces (host_copies.h), one in a process: nobody else may come between them.
    std::atomic<StreamState*> in_pieces{nullptr};
    // How the watcher sleeps: so that any burst wakes it, or, as bursts seldom come alone, only one whose start is
    // timed. It waits for this word to change.
    enum Sleep : uint32_t { awake, soundly, lightly };
    std::atomic<uint32_t> watcher_sleep{awake};

 private:
    friend class MembershipLocked;

    static Membership* join();
    static void leave_at_exit();
    static void* watcher_main(void* self);
    void wake_watcher();

    static constexpr CUdeviceptr kCannotMap = 1;
    bool start();
    void introduce();
    CUdeviceptr map_gate_of(StreamState& state);
    static std::atomic<Membership*> joined_;

    wire::Segment* segment_ = nullptr;
    wire::Slot* slot_ = nullptr;
    int index_ = -1;
    Lock lock_{Rank::membership};
    GpuPages pages_;
    GpuSet untimed_;                  // see is_start_untimed
    std::atomic<uint32_t> phase_{0};  // of the watcher: see joining.cpp; threads wait for it to change
    std::atomic<uint32_t> leaving_{0};
    std::atomic<uint64_t> burst_began_ns_[wire::kGpus]{};
};

class MembershipLocked : Locked {
 public:
    explicit MembershipLocked(Membership& membership) : Locked(membership.lock_) {}
};

}  // namespace tenant
