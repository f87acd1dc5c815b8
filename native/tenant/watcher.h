// The watcher: the thread that owns a tenant's slot for as long as its process lives. It checks when the streams have
// run empty, whether the gates are as they should be, and whose turn it is:
//
//   busy, with lower classes  every 50 to 200 us: are the streams empty, and have they been for the grace period?
//   busy, with equals         every 500 us, and while a turn is about to pass every 50 us (turns.h); a tenant that
//                             waits for its turn sleeps at its gate
//   busy otherwise            every 2 ms
//   idle                      a little longer at the fast pace (a burst seldom comes alone), then asleep until the next
//                             burst, with a look for requests every 500 ms
//
// And every 20 ms while busy it reaps slots, sees which tenants are there, and recomputes its gates. An idle tenant
// reads nothing of the others: it looks when it becomes busy.
#pragma once

#include "admission/grace.h"
#include "admission/share.h"
#include "admission/standstill.h"
#include "tenant/membership.h"
#include "tenant/slice_choice.h"
#include "tenant/stream_activity.h"
#include "tenant/turns.h"

namespace tenant {

class Watcher {
 public:
    explicit Watcher(Membership& membership)
        : membership_(membership),
          segment_(membership.segment()),
          slot_(membership.slot()),
          index_(membership.index()),
          terms_(membership.terms) {}

    // Until the tenant leaves.
    void watch();

 private:
    // When the streams were first seen empty; `on`: and they have been so since.
    struct Pause {
        uint64_t since_ns = 0;
        bool on = false;
    };
    struct OnGpu {
        Pause pause;
        uint64_t looked_ns = 0;     // at its streams
        uint64_t worked_ns = 0;     // its streams were certainly at work then, or later
        uint64_t accounted_ns = 0;  // up to when its time was charged
        // As of the last look at the gate.
        uint64_t minded_ns = 0, used_ns = 0;
        uint64_t cut_looked_ns = 0, cut_ns = 0;  // how long its kernel waits, cut, for a class that is not production
        uint64_t ends = 0;                       // StreamActivity::ends, as of the last look
        admission::Standstill standstill;
        uint64_t below_on_ns = 0;  // nobody of a lower class was seen on the GPU then
        // As of the last look around; when higher classes last made copies that close our gate, and short ones.
        uint64_t copies_above = 0, bus_used_ns = 0, short_copies_ns = 0;
        uint32_t rule = 0;
        bool tolerant = false;
        admission::Budgets budgets;
    };

    void take_requests(uint64_t now_ns);
    uint32_t best_class() const;
    void drain_for_the_end();
    void change_class(uint32_t wanted);
    void look_around(uint64_t now_ns);
    void look_at(int gpu, uint64_t now_ns);
    void look_at_start();
    void mind_copies_above(int gpu, uint64_t now_ns);
    void mind_bus(int gpu, uint64_t now_ns);
    void mind_copying(int gpu, const Seen& seen);
    void look_for_idleness(int gpu, uint64_t now_ns, const Seen& seen);
    void mind_hold(int gpu, uint64_t now_ns);
    void account(int gpu, uint64_t until_ns);
    void mind_gate(int gpu, uint64_t now_ns, const Seen& seen);
    void tell_timeline(int gpu, uint64_t now_ns);
    void mind_cut(int gpu, uint64_t now_ns, const Seen& seen);
    void mind_standstill(int gpu, float passed_us, const Seen& seen);
    void mind_overlap(int gpu, uint64_t now_ns, const Seen& seen);
    bool is_busy() const;
    bool is_pausing() const;
    uint64_t burst_age_ns(uint64_t now_ns) const;
    uint64_t grace_ns() const;
    uint64_t pace(uint64_t now_ns) const;
    void nap(uint64_t ns);
    void doze(uint64_t ns, uint32_t how);
    void nap_between_looks(uint64_t ns);
    void nap_with_an_eye_open(uint64_t ns);
    void nap_at_gate(uint64_t ns);

    Membership& membership_;
    wire::Segment& segment_;
    wire::Slot& slot_;
    const int index_;
    Terms& terms_;
    StreamActivity activity_{membership_};
    Turns turns_{membership_, activity_};
    SliceChoice slices_{membership_};
    OnGpu gpus_[wire::kGpus];
    admission::Grace grace_;
    uint32_t wanted_class_ = membership_.terms.tenant_class;  // which it has unless it may only have a lower one
    uint64_t garbage_since_ns_ = 0;                           // in the requests
    uint64_t overlapped_ns_ = 0;                              // when an equal was last on the GPU with us
    bool has_others_below_ = false, has_equals_ = false;
    bool has_above_ = true;  // somebody of a class above uses one of its GPUs
};

}  // namespace tenant
