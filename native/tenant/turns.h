// The watcher's part in taking turns (admission/turns.h): is the tenant's work on the GPU, how much of it was executed,
// is its turn over?
#pragma once

#include "admission/turn_keys.h"
#include "tenant/stream_activity.h"

namespace tenant {

class Turns {
 public:
    Turns(Membership& membership, StreamActivity& activity)
        : membership_(membership),
          segment_(membership.segment()),
          slot_(membership.slot()),
          index_(membership.index()),
          activity_(activity) {}

    void charge_executed(int gpu, uint64_t now_ns, const Seen& seen, bool has_equals);
    void take_part(int gpu, uint64_t now_ns, const Seen& seen, bool has_equals);
    // Since then its streams have been empty, if it was ready before.
    void note_empty(int gpu, uint64_t since_ns);
    // How soon the next look shall come, for one with equals.
    uint64_t pace() const;
    // As it was at the last look.
    uint32_t gate(int gpu) const { return gpus_[gpu].gate; }

 private:
    struct OnGpu {
        uint32_t gate = 0;
        uint64_t gate_since_ns = 0;  // since when it has been so
        float share = 1;             // admission::Look
        uint64_t looked_ns = 0;
        uint64_t passed_ns = 0;    // the time that the last look stands for
        uint64_t ran_ns = 0;       // when our streams were last seen running
        uint64_t executed_ns = 0;  // in this turn
        uint64_t before_ns = 0;    // and in the one before, if that has just ended: its last operations end now
        uint64_t gaps_ns = 0;      // in which our streams were empty in this turn
        admission::TurnCharge charge;
        uint64_t switched_ns = 0;  // when the turn came to us, if the switch is being measured
        float switch_us = 0;       // what it costs; 0: not measured yet
        bool empty = false;        // our streams were, at the last look
        bool held = false;         // we had the turn at the last look
        bool beside = false;       // we ran beside it
        uint64_t beside_since_ns = 0;
        uint64_t launched_ns = 0;  // before our streams were last empty
        uint64_t beside_ns = 0;    // wire::used_beside_ns, at the last look
        bool draining = false;     // our gate is closed, and our work is still there
        bool others_are_ready = false;
        bool copying = false;  // copies were seen to run
    };

    uint64_t turn_ns(int gpu, const wire::ReadyEquals& ready) const;
    uint64_t switch_ns(int gpu) const;
    bool is_over_beside(int gpu, uint64_t now_ns) const;
    void measure_switch(int gpu, uint64_t now_ns, const Seen& seen);

    Membership& membership_;
    wire::Segment& segment_;
    wire::Slot& slot_;
    const int index_;
    StreamActivity& activity_;
    OnGpu gpus_[wire::kGpus];
};

}  // namespace tenant
