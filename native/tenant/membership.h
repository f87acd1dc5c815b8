// A tenant's place in the segment: its slot, its streams and its gates. A process has one, and one more for each lane
// that is in use (lanes.h). joining.cpp makes it at the first work, and the watcher (watcher.h) owns the slot for as
// long as the process lives.
#pragma once

#include <algorithm>
#include <atomic>
#include <string>

#include "tenant/breakdown.h"
#include "tenant/captures.h"
#include "tenant/draining.h"
#include "tenant/due.h"
#include "tenant/durations.h"
#include "tenant/gpu_pages.h"
#include "tenant/gpu_set.h"
#include "tenant/hold.h"
#include "tenant/lane_number.h"
#include "tenant/let_through.h"
#include "tenant/linked_streams.h"
#include "tenant/locked.h"
#include "tenant/progress.h"
#include "tenant/raw_child.h"
#include "tenant/standing_places.h"
#include "tenant/streams.h"
#include "tenant/terms.h"
#include "wire/clock.h"
#include "wire/gates.h"
#include "wire/segment.h"
#include "wire/shared_segment.h"

namespace tenant {

class Membership;

struct Lane {
    LaneTerms terms;
    std::atomic<Membership*> joined{nullptr};
    std::atomic<bool> refused{false};  // the segment had no slot for it
};

class Membership {
 public:
    // Null: not joined. The first work of a process with a context joins; what cannot join passes through for good.
    static Membership* current() {
        Membership* joined = not_inherited.joined.load(std::memory_order_acquire);
        return __builtin_expect(joined != nullptr, 1) ? joined : join();
    }
    static Membership* current_if_joined() { return not_inherited.joined.load(std::memory_order_acquire); }
    static void forget_in_child();
    // From now on every launch asks to join, and so comes by join(). Usable in a signal's handler.
    static void turn_launches_to_join() { not_inherited.joined.store(nullptr); }

    // The lanes, numbered from 0. Their terms are never changed; each joins at its first work.
    static constexpr uint32_t kMostLanes = tenant::kMostLanes;
    static uint32_t lanes_open() { return lanes_open_.load(std::memory_order_acquire); }
    static const LaneTerms& lane_terms(uint32_t lane) { return lanes_[lane].terms; }
    // One at a time. Returns how many there are; 0: it was one too many.
    static int add_lane(const LaneTerms& terms);
    static Membership* lane_if_joined(uint32_t lane) { return lanes_[lane].joined.load(std::memory_order_acquire); }
    static bool is_refused(uint32_t lane) { return lanes_[lane].refused.load(); }
    // Whom the calling thread launches as: its lane, or its process's own.
    static Membership* of_thread(Membership* own) {
        uint32_t lane = lane_of_thread;
        if (!lane || !own) return own;
        Membership* joined = lane_if_joined(lane - 1);
        return joined ? joined : join_lane(lane - 1, own);
    }
    // The process's own and those of its lanes, as far as they have joined.
    template <class Do>
    static void for_each(Do&& act) {
        if (Membership* own = current_if_joined()) act(*own);
        for (uint32_t i = 0, count = lanes_open(); i < count; ++i)
            if (Membership* lane = lane_if_joined(i)) act(*lane);
    }
    bool is_lane() const { return lane_ != nullptr; }
    static inline StandingPlaces standing_places;
    // Whether this stream of its may stand at a gate.
    bool may_stand(StreamState& state) {
        return is_lane() ? standing_places.take(this, state) : !linked_streams_on(state.gpu);
    }
    // How many of its streams wait for each other there (linked_streams.h). Those of lanes stand at gates all the same:
    // a thread of a lane that waits may hold what production's threads need.
    uint32_t linked_streams_on(int gpu) const { return is_lane() ? 0 : linked_streams.count(gpu); }
    // When something last happened in its streams on this GPU, as its watcher sees it.
    uint64_t moved_ns(int gpu) const { return std::max(moved_ns_[gpu].load(), burst_began_ns(gpu)); }
    // What was launched behind gates, ever, as long as it takes alone.
    void note_launched(int gpu, float us) {
        launched_ns_[gpu].fetch_add(static_cast<uint64_t>(us * 1000), std::memory_order_relaxed);
    }
    uint64_t launched_ns(int gpu) const { return launched_ns_[gpu].load(std::memory_order_relaxed); }
    void note_move(int gpu, uint64_t now_ns) { moved_ns_[gpu].store(now_ns, std::memory_order_relaxed); }

    wire::Segment& segment() { return *segment_; }
    wire::Slot& slot() { return *slot_; }
    int index() const { return index_; }

    // The edge from idle to busy on a GPU: closes the gates of the classes below. One that is about to copy wants no
    // turn.
    void become_busy(int gpu, bool wants_turn = true);
    // Before a copy of admission::kBusCopy or more: closes the gates for copies of the classes below.
    void become_copying(int gpu);
    // Whether something is due at the next operation that waits for SMs, of those that pass no gates: at the first one
    // of a burst (a copy in front of it does not wait for them), after a wait, and where the watcher asks for it.
    bool has_due(int gpu) const { return due_.has(gpu); }
    // By the thread that is about to launch into this stream. True: it shall hold the GPU once it has launched.
    bool do_due(const StreamState& state);
    void hold(const StreamState& state);
    // A thread has waited for the GPU: if it launches again in the same burst there was a gap.
    void note_wait(int gpu) {
        if (below.has(gpu)) due_.saw_wait(gpu);
    }
    void ask_for_hold(int gpu) { due_.look_again(gpu); }
    // The edge from empty to having work, for one that passes gates: it takes the turn among its equals, or waits.
    void become_ready(int gpu);
    // And back, whether or not it is busy for a while yet: it executed so much in its turn.
    void note_empty(int gpu, uint64_t since_ns, uint64_t executed_ns);
    uint64_t burst_began_ns(int gpu) const { return burst_began_ns_[gpu].load(); }
    bool is_leaving() const { return leaving_.load(); }
    Draining draining;
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
    // And where the same stream finds the gate for copies.
    CUdeviceptr copy_gate_of(StreamState& state);
    // The segment's number of a context's GPU; -1: unknown.
    int gpu_of(CUcontext context);
    void mark_end_of_work(StreamState& state);
    // Behind a copy of admission::kBusCopy or more, so that lower classes, if there are any, do not wait for what the
    // program puts behind it as well.
    void mark_end_of_copy(StreamState& state);
    // Under the lock, before a context ends and after; in between, nobody of ours uses it.
    int begin_end_of(CUcontext context) {
        streams.remove_if([&](const StreamState& state) { return state.context == context; });
        samples.forget_context(context);
        breakdown.forget_context(context);
        captures.remove_all_of(context);
        for (Hold& hold : holds) hold.forget(context);
        return pages_.begin_end_of(context);
    }
    void complete_end(int number) { pages_.complete_end(number); }
    // For an operation that should be timed: a pair of events, or null.
    Samples::Sample* begin_sample(Shape shape, const StreamState& state, bool is_kernel, float scale);

    // It looks at once. Usable in a signal's handler.
    void wake_watcher();

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
    Hold holds[wire::kGpus];  // of the process's own, if it is production
    // Of a tenant that passes gates: what was left, at a random moment of its whole run, of the kernel that ran.
    std::atomic<float> rest_us{0};
    LetThrough let_through;
    LinkedStreams linked_streams;
    // The watcher's: how many launches of each other tenant of the process it has seen, and when there last was a new
    // one.
    struct Launches {
        uint64_t count = 0, since_ns = 0;
    };
    Launches launches_seen[1 + kMostLanes][wire::kGpus];
    Terms terms;
    GpuSet used_gpus;    // some stream of this tenant is there
    GpuSet company;      // somebody whom this tenant may have to wait for uses the GPU
    GpuSet below;        // a lower class uses the GPU
    GpuSet bus;          // a higher class has copied between the host and the GPU lately
    GpuSet long_pieces;  // and only in a way for which longer pieces will do
    GpuSet to_hold;      // cut kernels, if there are any, are kept off it in the gaps of its bursts (hold.h)
    GpuSet brief;        // in its last turn it had a moment's work between two copies
    // The stream into which a thread copies in pieces (host_copies.h), one in a process, whichever lanes it has: nobody
    // else may come between them. And how many threads wait for that.
    static inline std::atomic<StreamKey> in_pieces{kNoStream};
    static inline std::atomic<uint32_t> waiting_for_pieces{0};
    // How the watcher sleeps: so that any burst wakes it, or, as bursts seldom come alone, only one whose start is
    // timed. It waits for this word to change.
    enum Sleep : uint32_t { awake, soundly, lightly };
    std::atomic<uint32_t> watcher_sleep{awake};

 private:
    bool finds_company(int gpu);
    uint32_t how_ready(int gpu);
    friend class MembershipLocked;
    friend struct MembershipInside;  // tests/tenant/membership_inside.h

    static Membership* join();
    static Membership* join_lane(uint32_t lane, Membership* own);
    static Membership* start_lane(uint32_t lane, Membership* own);
    static void leave_at_exit();
    void leave();
    static void* watcher_main(void* self);

    static constexpr CUdeviceptr kCannotMap = 1;
    bool start(const char* path, std::string* why);
    void introduce();
    CUdeviceptr map_gate_of(StreamState& state);
    static inline Lane lanes_[kMostLanes];
    static inline std::atomic<uint32_t> lanes_open_{0};
    // Of all tenants of the process: what a capture forbids, it forbids to all watchers.
    static inline Lock lock_{Rank::membership};

    const LaneTerms* lane_ = nullptr;  // null: the process's own

    wire::Segment* segment_ = nullptr;
    wire::Slot* slot_ = nullptr;
    int index_ = -1;
    GpuPages pages_;
    Due due_;
    std::atomic<uint32_t> phase_{0};  // of the watcher: see joining.cpp; threads wait for it to change
    std::atomic<uint32_t> leaving_{0};
    std::atomic<uint64_t> burst_began_ns_[wire::kGpus]{};
    std::atomic<uint64_t> launched_ns_[wire::kGpus]{};
    // Since when its streams were empty, 0: they never were, and what it had executed in its turn.
    struct Empty {
        std::atomic<uint64_t> since_ns{0}, executed_ns{0};
    } empty_[wire::kGpus];
    std::atomic<uint64_t> moved_ns_[wire::kGpus]{};
};

class MembershipLocked : Locked {
 public:
    explicit MembershipLocked(Membership& membership) : Locked(membership.lock_) {}
};

}  // namespace tenant
