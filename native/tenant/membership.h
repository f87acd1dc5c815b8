// One process's place in the segment: its slot, its streams, its gates, and the watcher thread that owns the slot for
// as long as the process lives.
#pragma once

#include <atomic>

#include "admission/cut.h"
#include "admission/grace.h"
#include "admission/share.h"
#include "tenant/breakdown.h"
#include "tenant/captures.h"
#include "tenant/durations.h"
#include "tenant/gpu_pages.h"
#include "tenant/locked.h"
#include "tenant/progress.h"
#include "tenant/settings.h"
#include "tenant/streams.h"
#include "tenant/time_slice.h"
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

    // The edge from idle to busy on a GPU: closes the gates of the classes below.
    void become_busy(int gpu);
    // Whether no operation of the burst that waits for SMs was launched yet: a copy in front of them does not.
    bool is_start_untimed(int gpu) const { return untimed_.load(std::memory_order_relaxed) >> gpu & 1; }
    // Right after it, by the thread that is about to launch into this stream: how long will the burst wait for the GPU?
    void time_start(const StreamState& state);
    // The edge from empty to having work, for one that passes gates: it takes the turn among its equals, or waits.
    void become_ready(int gpu);
    // Whether somebody whom this tenant may have to wait for uses the GPU.
    bool has_company(int gpu) const { return company_.load(std::memory_order_relaxed) >> gpu & 1; }
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
        breakdown_.forget_context(context);
        captures.remove_all_of(context);
        return pages_.begin_end_of(context);
    }
    void complete_end(int number) { pages_.complete_end(number); }
    // For an operation that should be timed: a pair of events, or null.
    Samples::Sample* begin_sample(Shape shape, const StreamState& state);

    // It has not been stopped: for whoever it keeps waiting, by its work or in a line.
    void beat(uint64_t now_ns);

    void lock() { lock_.lock(); }
    bool try_lock() { return lock_.try_lock(); }
    void unlock() { lock_.unlock(); }

    StreamTable streams;
    Durations durations;
    Samples samples;
    Progress progress;

 private:
    friend class MembershipLocked;

    static Membership* join();
    static void leave_at_exit();
    static void* watcher_main(void* self);

    static constexpr CUdeviceptr kCannotMap = 1;
    // How the watcher sleeps: so that any burst wakes it, or, as bursts seldom come alone, only one whose start is
    // timed.
    enum Sleep : uint32_t { awake, soundly, lightly };

    // What is in our streams.
    struct Seen {
        bool changed = false;     // something was put into a stream since the last look, finished or not
        bool unfinished = false;  // something is in a stream
        bool running = false;     // and does not stand at a gate
        bool standing = false;    // some stream stands at one
        bool called = false;      // a thread is in the driver with an operation

        bool is_at_work() const { return changed || unfinished || called; }
    };

    bool start();
    void introduce();
    CUdeviceptr map_gate_of(StreamState& state);
    void watch();
    void take_requests(uint64_t now_ns);
    void mend_slot();
    void look_around(uint64_t now_ns);
    void look_at(int gpu, uint64_t now_ns);
    uint64_t pace(uint64_t now_ns) const;
    bool is_busy() const;
    bool is_pausing() const;
    uint64_t burst_age_ns(uint64_t now_ns) const;
    void look_for_idleness(int gpu, uint64_t now_ns, const Seen& seen);
    void account(int gpu, uint64_t until_ns);
    void mind_gate(int gpu, uint64_t now_ns, const Seen& seen);
    double done_us(int gpu);
    void mind_time_slice();
    bool is_empty(StreamState& state);
    Seen see_streams(int gpu);
    void take_part_in_turns(int gpu, uint64_t now_ns, const Seen& seen);
    void charge_executed(int gpu, uint64_t now_ns, const Seen& seen);
    void mind_overlap(int gpu, uint64_t now_ns, const Seen& seen);
    void measure_switch(int gpu, uint64_t now_ns, const Seen& seen);
    uint64_t turn_ns(int gpu, uint32_t ready) const;
    uint64_t switch_ns(int gpu) const;
    uint64_t pace_of_turns() const;
    uint64_t grace_ns() const;
    void nap(uint64_t ns);
    void doze(uint64_t ns, uint32_t how);
    void look_at_start();
    void nap_between_looks(uint64_t ns);
    void nap_with_an_eye_open(uint64_t ns);
    void nap_at_gate(uint64_t ns);
    void change_class(uint32_t wanted);
    template <class Do>
    void for_each_used_gpu(Do&& act) {
        for (uint32_t gpus = used_gpus_.load(); gpus; gpus &= gpus - 1) act(__builtin_ctz(gpus));
    }
    void wake();
    void write_report();

    // What this tenant says of itself in its slot, kept here: it writes it again where somebody has overwritten it.
    struct Terms {
        uint32_t tenant_class = wire::standard, weight = 1000, slowdown = 0, floor = 0;
        uint8_t run_id[16] = {};
        char name[sizeof wire::Slot::name] = {};
    };

    static std::atomic<Membership*> joined_;

    wire::Segment* segment_ = nullptr;
    wire::Slot* slot_ = nullptr;
    int index_ = -1;
    Lock lock_{Rank::membership};
    GpuPages pages_;
    std::atomic<uint32_t> used_gpus_{0};  // bit: some stream of ours is there
    std::atomic<uint32_t> company_{0};    // bit: see has_company
    std::atomic<uint32_t> phase_{0};      // of the watcher: see membership.cpp; also its futex
    std::atomic<uint32_t> untimed_{0};    // bit: see is_start_untimed
    std::atomic<uint32_t> asleep_{0};     // Sleep; also the watcher's futex
    std::atomic<uint32_t> below_{0};      // bit: a lower class uses this GPU
    Breakdown breakdown_;
    std::atomic<uint32_t> leaving_{0};
    std::atomic<uint64_t> burst_began_ns_[wire::kGpus]{};

    // The watcher's own.
    Terms terms_;
    uint64_t garbage_since_ns_ = 0;  // in the requests
    struct Pause {
        uint64_t since_ns = 0;  // when the streams were first seen empty
        bool on = false;        // and they have been so since
    } pauses_[wire::kGpus];
    admission::Grace grace_;
    uint64_t accounted_ns_[wire::kGpus] = {};  // up to when its time was charged
    // As of the last look at a gate.
    uint64_t minded_ns_[wire::kGpus] = {};
    uint64_t used_then_ns_[wire::kGpus] = {};
    double done_then_us_[wire::kGpus] = {};
    uint32_t rules_then_[wire::kGpus] = {};
    admission::Budgets budgets_[wire::kGpus];
    // Among equals (turn.cpp).
    struct Turns {
        uint32_t gate = 0;           // as it was at the last look
        uint64_t gate_since_ns = 0;  // since when it has been so
        uint64_t looked_ns = 0;
        uint64_t ran_ns = 0;          // when our streams were last seen running
        uint64_t empty_since_ns = 0;  // 0: they are not empty
        uint64_t executed_ns = 0;     // in this turn
        uint64_t switched_ns = 0;     // when the turn came to us, if the switch is being measured
        float switch_us = 0;          // what it costs; 0: not measured yet
        bool held = false;            // we had the turn at the last look
        bool draining = false;        // our gate is closed, and our work is still there
        bool others_are_ready = false;
        bool running = false;  // our streams, at the last look
    } turns_[wire::kGpus];
    bool was_tolerant_[wire::kGpus] = {};
    bool has_others_below_ = false, has_equals_ = false;
    bool has_above_ = true;  // somebody of a class above uses one of its GPUs
    admission::Cutting cutting_;
    bool overlaps_ = false;  // an equal was on the GPU with us lately
    uint64_t overlapped_ns_ = 0;
    float cut_cost_us_ = cut_cost_from_environment();
    uint32_t asked_slice_us_ = 0;        // 0: by class
    admission::TimeSlices slices_ = {};  // as last set
};

class MembershipLocked : Locked {
 public:
    explicit MembershipLocked(Membership& membership) : Locked(membership.lock_) {}
};

}  // namespace tenant
