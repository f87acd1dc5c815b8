#include "tenant/turns.h"

#include <algorithm>
#include <utility>

#include "admission/charging.h"
#include "admission/turns.h"
#include "wire/border.h"
#include "wire/gates.h"

namespace tenant {

namespace {

// A stream may have passed the gate just before it was closed, and a launch may have found it open: only after so long
// is it seen.
constexpr uint64_t kSettleNs = 30000;
constexpr uint64_t kBlockedNs = 20000000;
constexpr uint64_t kLongestBesideNs = 20000000;
constexpr uint64_t kLongestSwitchNs = 5000000;  // more than that was no switch: somebody had no processor

}  // namespace

void Turns::charge_executed(int gpu, uint64_t now, const Seen& seen, bool has_equals) {
    OnGpu& turns = gpus_[gpu];
    uint32_t gate = slot_.gpus[gpu].gate.load();
    wire::OnGpu& here = slot_.gpus[gpu];
    uint64_t since = std::max(turns.looked_ns, membership_.burst_began_ns(gpu));
    bool was_open = turns.gate == wire::kGateOpen, is_open = gate == wire::kGateOpen;
    float before = turns.share;
    turns.share = wire::slice_share(segment_, index_, gpu, switch_ns(gpu));
    uint64_t executed =
        admission::executed_ns({now, since, was_open, is_open, has_equals, seen.needs_sms, seen.running,
                                here.on.load() != 0, here.stop_ns.load(), was_open && !is_open ? before : turns.share});
    uint64_t beside_ns = wire::used_beside_ns(segment_, index_, gpu);
    if (turns.beside) {
        uint64_t launched = membership_.launched_ns(gpu) - turns.launched_ns;
        executed = std::min(executed, launched - std::min(launched, turns.executed_ns));
    } else if (was_open && is_open) {
        executed -= std::min(executed, beside_ns - std::min(beside_ns, turns.beside_ns));
    }
    turns.beside_ns = beside_ns;
    if (gate != turns.gate) {
        turns.gate = gate;
        turns.gate_since_ns = now;
    }
    turns.passed_ns = now - std::min(now, since);
    turns.looked_ns = now;
    if (seen.running) turns.ran_ns = now;
    wire::charge(segment_, index_, gpu, executed, turns.charge.owed_ns(executed));
    turns.executed_ns += executed;
}

uint64_t Turns::turn_ns(int gpu, const wire::ReadyEquals& ready) const {
    if (uint32_t told_us = wire::turn_us(segment_.header.knobs)) return uint64_t{told_us} * 1000;
    return admission::turn_ns(switch_ns(gpu), ready.count, ready.brief_ns);
}

uint64_t Turns::switch_ns(int gpu) const {
    float us = gpus_[gpu].switch_us;
    return us > 0 ? static_cast<uint64_t>(us * 1000) : admission::kAssumedSwitchNs;
}

void Turns::take_part(int gpu, uint64_t now, const Seen& seen, bool has_equals) {
    wire::OnGpu& here = slot_.gpus[gpu];
    OnGpu& turns = gpus_[gpu];
    wire::ReadyEquals ready = wire::ready_equals(segment_, index_, gpu);
    bool others_are_ready = ready.count > 0, holds = here.holds_turn.load();
    bool beside = here.ready.load() == wire::beside, comes_beside = beside && !turns.beside;
    turns.beside = beside;
    if (comes_beside) turns.beside_since_ns = now;
    if (comes_beside || (holds && !turns.held))
        turns.executed_ns = turns.before_ns = turns.gaps_ns = turns.passed_ns = 0;
    if (holds && !turns.held) {
        turns.switched_ns = here.switch_ns.load();
        wire::charge(segment_, index_, gpu, 0, turns.charge.begin(switch_ns(gpu)));
    }
    // A thread in the driver with a synchronous copy waits at its gate: the operation counts as issued only afterwards.
    bool has_work = seen.wants_turn();
    turns.copying = seen.copying;
    turns.empty = !has_work;
    if (turns.empty) turns.gaps_ns += turns.passed_ns;
    measure_switch(gpu, now, seen);

    uint64_t length = turn_ns(gpu, ready);
    here.turn_us.store(static_cast<uint32_t>(length / 1000));
    bool is_brief = membership_.brief.has(gpu);
    bool over = admission::is_over(
        {turns.executed_ns, length, switch_ns(gpu), turns.empty, turns.gaps_ns, is_brief && seen.copying});
    bool keeps_gap = has_equals && holds && !over;
    if (!has_work && here.ready.load() && !keeps_gap) {
        membership_.brief.set(gpu, seen.copying && !admission::was_worth_it(turns.executed_ns, switch_ns(gpu)));
        note_empty(gpu, now);
        wire::forgo_turn(segment_, index_, gpu);
        // Either a launch in this moment sees that we are not ready, or we see the launch.
        if (Seen again = activity_.see(gpu); again.wants_turn() || again.is_unknown)
            membership_.become_ready(gpu);
        else if (!others_are_ready)
            wire::go_empty(segment_, index_, gpu, turns.ran_ns);
    } else if (has_work && !here.ready.load()) {
        membership_.become_ready(gpu);
    } else if ((holds && over && others_are_ready) || (beside && is_over_beside(gpu, now))) {
        wire::end_turn(segment_, index_, gpu);
        turns.before_ns = std::exchange(turns.executed_ns, 0);
        // Whatever its kernels were expected to take: next time it takes a turn.
        if (beside) turns.before_ns += admission::kBriefTurnNs;
    }
    bool goes = wire::refresh_gate(segment_, index_, gpu);
    uint32_t gate = here.gate.load();
    if (gate != turns.gate) {
        turns.gate = gate;
        turns.gate_since_ns = now;
    }
    turns.held = here.holds_turn.load();
    turns.others_are_ready = others_are_ready;
    turns.draining = false;
    if (goes || !here.on.load()) return;
    // A kernel that a class above cuts cannot end.
    if (!here.stop_ns.load() || wire::is_above_busy(segment_, index_, gpu)) here.stop_ns.store(now);
    uint64_t closed_ns = now - turns.gate_since_ns;
    // A stream that waits for another's event cannot say so: with some of them at the gate, it waits for these.
    bool blocked = seen.standing && closed_ns >= kBlockedNs;
    if ((!seen.running && closed_ns >= kSettleNs) || blocked)
        wire::leave_gpu(segment_, index_, gpu, gate, turns.ran_ns);
    else
        turns.draining = true;
}

bool Turns::is_over_beside(int gpu, uint64_t now) const {
    const OnGpu& turns = gpus_[gpu];
    return turns.executed_ns > admission::kBriefTurnNs || now - turns.beside_since_ns > kLongestBesideNs ||
           wire::others_of(segment_, index_, gpu).above;
}

void Turns::note_empty(int gpu, uint64_t since) {
    OnGpu& turns = gpus_[gpu];
    turns.beside = false;
    turns.launched_ns = membership_.launched_ns(gpu);
    if (slot_.gpus[gpu].ready.load()) membership_.note_empty(gpu, since, turns.before_ns + turns.executed_ns);
}

// From when the one before us was last seen running to when we are first seen so.
void Turns::measure_switch(int gpu, uint64_t now, const Seen& seen) {
    OnGpu& turns = gpus_[gpu];
    if (!slot_.gpus[gpu].holds_turn.load()) turns.switched_ns = 0;
    if (!turns.switched_ns || !seen.running) return;
    uint64_t took = now - turns.switched_ns;
    turns.switched_ns = 0;
    if (took > kLongestSwitchNs) return;
    float us = static_cast<float>(took) / 1000;
    turns.switch_us = turns.switch_us > 0 ? turns.switch_us + (us - turns.switch_us) / 8 : us;
    slot_.gpus[gpu].switch_us.store(static_cast<uint32_t>(turns.switch_us));
}

uint64_t Turns::pace() const {
    // Each look may take the driver's lock from a thread that launches. Whoever wants the turn wakes its holder.
    constexpr uint64_t kSoonNs = 50000, kCopyNs = 100000, kTurnNs = 150000, kAloneNs = 1000000, kWaitingNs = 5000000;
    uint64_t pace = kWaitingNs;
    for (int gpu = 0; gpu < wire::kGpus; ++gpu) {
        const wire::OnGpu& here = slot_.gpus[gpu];
        const OnGpu& turns = gpus_[gpu];
        if (!here.busy.load(std::memory_order_relaxed)) continue;
        bool waits = here.ready.load() && !here.on.load();
        if (waits) continue;
        // Behind its copies may be kernels, which nobody knows of before they are reached.
        bool soon = turns.draining || turns.switched_ns ||
                    (turns.others_are_ready && (turns.empty ? !turns.copying : membership_.brief.has(gpu)));
        uint64_t otherwise = turns.copying ? kCopyNs : turns.others_are_ready ? kTurnNs : kAloneNs;
        pace = std::min(pace, soon ? kSoonNs : otherwise);
    }
    return pace;
}

}  // namespace tenant
