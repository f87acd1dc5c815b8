#include "tenant/watcher.h"

#include <sys/prctl.h>

#include <algorithm>
#include <utility>

#include "admission/bus.h"
#include "admission/rules.h"
#include "tenant/captures.h"
#include "tenant/lanes.h"
#include "tenant/launch_rule.h"
#include "tenant/leave_in_order.h"
#include "tenant/membership_events.h"
#include "tenant/notice.h"
#include "tenant/timeline.h"
#include "tenant/timeline_requests.h"
#include "wire/border.h"
#include "wire/clock.h"
#include "wire/gates.h"
#include "wire/shared_segment.h"
#include "wire/sleep.h"

namespace tenant {

namespace {

constexpr uint64_t kMillisecond = 1000000;
constexpr uint64_t kCareNs = 20 * kMillisecond;
constexpr uint64_t kCalmNs = 2 * kMillisecond;
constexpr uint64_t kLookNs = 500 * kMillisecond;
constexpr uint64_t kOverlapNs = 50 * kMillisecond;
// A writer on a busy machine may be held up between a request and its check word; the next one waits for twice as
// long before it adds to what is there (segment/requests.py).
constexpr uint64_t kGarbageNs = 1000 * kMillisecond;
constexpr uint64_t kLingerNs = 20 * kMillisecond;
constexpr uint64_t kShortestNap = 50000, kLongestNap = 200000;
// While the start of a burst is timed.
constexpr uint64_t kTimingNap = 10000, kTimedNs = 5 * kMillisecond;

}  // namespace

void Watcher::watch() {
    prctl(PR_SET_TIMERSLACK, 1000UL, 0, 0, 0);
    CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    driver.cuThreadExchangeStreamCaptureMode(&relaxed);
    uint64_t last_busy = 0, last_care = 0;
    while (!membership_.is_leaving()) {
        look_at_start();
        if (leave_in_order::is_ending()) drain_for_the_end();
        uint64_t now = wire::now_ns();
        take_requests(now);
        if (now - last_care >= kCareNs) {
            last_care = now;
            // Others may have written anything into the slot.
            if (!wire::keep_slot(segment_, index_)) notice_once("another process has this one's slot in the segment");
            terms_.mend(segment_, index_);
            membership_.beat(now);
            change_class(membership_.is_lane() ? wanted_class_ : terms_.tenant_class);
            look_around(now);
            if (!membership_.is_lane()) tell<AtLook>([&](const AtLook& one) { one.act(membership_, now); });
        }
        bool timing = membership_.samples.any_on_its_way();
        if (timing && membership_.try_lock()) {
            membership_.samples.collect(membership_.durations);
            membership_.unlock();
        }
        if (is_busy()) {
            last_busy = now;
            membership_.beat(now);
            membership_.used_gpus.each([&](int gpu) { look_at(gpu, now); });
            nap_between_looks(pace(now));
        } else if (now - last_busy < kLingerNs && (has_others_below_ || has_equals_)) {
            doze(kLongestNap, Membership::lightly);
        } else if (timing) {
            doze(kCalmNs, Membership::soundly);
        } else {
            doze(kLookNs, Membership::soundly);
        }
    }
    if (!membership_.is_lane()) timeline::end_recording(membership_, wire::now_ns());
}

void Watcher::take_requests(uint64_t now) {
    wire::Asked asked;
    wire::Request found = wire::take_requests(slot_, &asked);
    if (found == wire::Request::garbage) {
        // Somebody may be about to write the check word.
        if (!garbage_since_ns_) garbage_since_ns_ = now;
        if (now - garbage_since_ns_ > kGarbageNs) wire::forget_requests(slot_);
        return;
    }
    garbage_since_ns_ = 0;
    if (found == wire::Request::none) return;
    if (asked.weight) slot_.weight.store(terms_.weight = std::max(asked.weight - 1, 1u));
    if (asked.slowdown) slot_.slowdown.store(terms_.slowdown = asked.slowdown - 1);
    if (asked.floor) slot_.floor.store(terms_.floor = asked.floor - 1);
    if (asked.tenant_class) change_class(wanted_class_ = asked.tenant_class - 1);
    if (asked.time_slice_us) slices_.ask(asked.time_slice_us - 1);
    if (asked.tenant_class || asked.time_slice_us) slices_.mind(has_above_);
    if (!membership_.is_lane()) tell<AtRequest>([&](const AtRequest& one) { one.act(membership_, asked); });
}

void Watcher::look_around(uint64_t now) {
    uint32_t tenant_class = terms_.tenant_class, rule = wire::rule_of(segment_.header);
    membership_.durations.pass_time(now);
    // A tenant that a dead one keeps waiting has work, and reaps it.
    if (is_busy() && (tenant_class != wire::production || wire::is_shared(segment_))) wire::reap_slots(segment_);
    has_others_below_ = has_equals_ = has_above_ = false;
    membership_.used_gpus.each([&](int gpu) {
        admission::Others others = wire::others_of(segment_, index_, gpu);
        has_others_below_ |= others.below;
        has_equals_ |= others.equal;
        has_above_ |= others.above;
        membership_.below.set(gpu, others.below);
        if (!admission::is_gated(rule, tenant_class))
            membership_.breakdown.weigh(slot_, gpu, !wire::anybody_at_work(segment_, index_, gpu), now);
        membership_.company.set(gpu, wire::has_company(segment_, index_, gpu, others));
        if (others.above) mind_copies_above(gpu, now);
        mind_gate(gpu, now, activity_.see(gpu));
    });
    slices_.mind(has_above_);
}

// Copies that are too short to close our gate. An opportunistic tenant's own copies are cut for them (time_slices.h);
// where these slices are not to be had, it copies in pieces for them, too.
void Watcher::mind_copies_above(int gpu, uint64_t now) {
    OnGpu& ours = gpus_[gpu];
    bool is_cut =
        terms_.tenant_class == wire::opportunistic && slot_.time_slice_us.load() && !slot_.time_slice_refused.load();
    uint64_t copies = wire::copies_above(segment_, index_, gpu);
    if (copies > ours.copies_above && !is_cut) ours.short_copies_ns = now;
    ours.copies_above = copies;
}

void Watcher::mind_bus(int gpu, uint64_t now) {
    OnGpu& ours = gpus_[gpu];
    bool is_closed = slot_.copy_gates[gpu].load() != wire::kGateOpen;
    if (is_closed && wire::is_above_copying(segment_, index_, gpu)) ours.bus_used_ns = now;
    auto is_recent = [&](uint64_t then) { return then && now - then < admission::kBusNs; };
    bool is_used = is_recent(ours.bus_used_ns), is_shared = !is_used && is_recent(ours.short_copies_ns);
    membership_.long_pieces.set(gpu, is_shared && wire::is_above_tolerant(segment_, index_, gpu));
    membership_.bus.set(gpu, is_used || is_shared);
}

void Watcher::look_at(int gpu, uint64_t now) {
    if (!slot_.gpus[gpu].busy.load()) return;
    Seen seen = activity_.see(gpu);
    mind_copying(gpu, seen);
    look_for_idleness(gpu, now, seen);
    bool has_changed = slices_.note_floors(gpu, now);
    if (slices_.note_rest(gpu, now) || has_changed) slices_.mind(has_above_);
    mind_hold(gpu, now);
    mind_gate(gpu, now, seen);
}

void Watcher::mind_hold(int gpu, uint64_t now) {
    if (terms_.tenant_class != wire::production || membership_.is_lane()) return;
    Hold& hold = membership_.holds[gpu];
    bool is_busy = slot_.gpus[gpu].busy.load();
    if (hold.is_to_be_prepared() && membership_.try_lock()) {
        if (hold.is_to_be_prepared()) hold.prepare();
        membership_.unlock();
    }
    // What was true in this burst holds for the next one's start.
    if (is_busy)
        membership_.to_hold.set(gpu, Hold::is_possible() && !wire::is_tolerant(slot_, gpu) &&
                                         !wire::is_equal_at_work(segment_, index_, gpu) && !slices_.by_floors());
    bool moves = now < membership_.moved_ns(gpu) + Hold::kStillNs;
    if (!membership_.to_hold.has(gpu) || !is_busy || !moves || !wire::is_cut_below_on(segment_, index_, gpu))
        hold.release();
    else if (hold.is_due())
        membership_.ask_for_hold(gpu);
}

// When it began is known as closely as looks come: soon after another, for as long as such a wait may last.
void Watcher::look_at_start() {
    if (!membership_.breakdown.is_timing() || captures.load() || !membership_.try_lock()) return;
    if (!captures.load()) membership_.breakdown.look_at_start(slot_, wire::now_ns());
    membership_.unlock();
}

uint64_t Watcher::pace(uint64_t now) const {
    // How much slower production is beside others is known only where it is measured as closely alone.
    if (has_others_below_ || terms_.tenant_class == wire::production) {
        // The longer a burst has lasted, the less it matters to see its end at once; each look takes the driver's lock.
        uint64_t patience = is_pausing() ? 0 : burst_age_ns(now) / 16;
        return std::clamp(std::max(grace_ns() / 4, patience), kShortestNap, kLongestNap);
    }
    return has_equals_ ? turns_.pace() : kCalmNs;
}

bool Watcher::is_busy() const {
    for (const wire::OnGpu& gpu : slot_.gpus)
        if (gpu.busy.load()) return true;  // in this order after `watcher_sleep`: see doze
    return false;
}

bool Watcher::is_pausing() const {
    for (const OnGpu& ours : gpus_)
        if (ours.pause.on) return true;
    return false;
}

uint64_t Watcher::burst_age_ns(uint64_t now) const {
    uint64_t began = now;
    for (int gpu = 0; gpu < wire::kGpus; ++gpu)
        if (slot_.gpus[gpu].busy.load(std::memory_order_relaxed))
            began = std::min(began, membership_.burst_began_ns(gpu));
    return now - began;
}

uint64_t Watcher::grace_ns() const {
    float fallback_us = static_cast<float>(wire::grace_us(segment_.header.knobs));
    return static_cast<uint64_t>(grace_.us(fallback_us) * 1000);
}

void Watcher::look_for_idleness(int gpu, uint64_t now, const Seen& seen) {
    OnGpu& ours = gpus_[gpu];
    Pause& pause = ours.pause;
    bool at_work = seen.is_at_work();
    uint64_t looked_ns = std::exchange(ours.looked_ns, now);
    membership_.breakdown.saw_streams(slot_.gpus[gpu], gpu, !seen.unfinished, at_work, membership_.burst_began_ns(gpu),
                                      now);
    if (at_work) {
        if (pause.on) {
            // A pause that was given away ended with the launch that made us busy again.
            uint64_t began = membership_.burst_began_ns(gpu);
            uint64_t end = began > pause.since_ns && began < now ? began : now;
            // Where a thread has made the gap by waiting for all work, nothing holds the GPU in it.
            if (began <= pause.since_ns && Hold::waited_for_all_ns.load() <= ours.worked_ns)
                membership_.holds[gpu].saw_gap();
            grace_.saw_pause(static_cast<double>(pause.since_ns) / 1000, static_cast<double>(end) / 1000);
            slot_.grace_us.store(static_cast<uint32_t>(grace_ns() / 1000));
        }
        pause.on = false;
        // What a thread launched since the last look may be done by now, and whoever waited for it may have returned.
        bool is_now = seen.called || (seen.unfinished && !seen.is_unknown);
        ours.worked_ns = is_now ? now : looked_ns;
        account(gpu, now);
        return;
    }
    if (!pause.on) pause = {now, true};
    account(gpu, pause.since_ns);
    if (now - pause.since_ns < grace_ns()) return;
    uint64_t began_ns = membership_.burst_began_ns(gpu);
    turns_.note_empty(gpu, pause.since_ns);
    slot_.gpus[gpu].busy.store(0);
    // Either a launch in this moment sees that we are idle, or we see the launch. Once we have looked, `busy` is the
    // launching thread's again.
    Seen now_seen = activity_.see(gpu);
    if (now_seen.is_at_work()) {
        membership_.become_busy(gpu, now_seen.wants_turn() || now_seen.is_unknown);
        if (now_seen.uses_bus) membership_.become_copying(gpu);
    } else {
        membership_.breakdown.saw_idle(gpu);
        if (timeline::is_on()) {
            timeline::saw_burst(slot_, gpu, began_ns, pause.since_ns);
            timeline::saw_gate(gpu, false, {}, now);
            timeline::saw_turn(gpu, false, now);
        }
        wire::refresh_gates(segment_, terms_.tenant_class, gpu);
    }
}

void Watcher::mind_copying(int gpu, const Seen& seen) {
    if (seen.uses_bus || slot_.gpus[gpu].busy.load() != wire::copying) return;
    wire::end_copying(segment_, index_, gpu);
    // Either a launch in this moment sees that we do not copy, or we see the launch.
    if (activity_.see(gpu).uses_bus) membership_.become_copying(gpu);
}

// A burst lasts from the launch that began it to when the streams were first seen empty.
void Watcher::account(int gpu, uint64_t until) {
    wire::OnGpu& here = slot_.gpus[gpu];
    uint64_t since = std::max(gpus_[gpu].accounted_ns, membership_.burst_began_ns(gpu));
    if (until <= since) return;
    gpus_[gpu].accounted_ns = until;
    here.busy_ns.fetch_add(until - since, std::memory_order_relaxed);
    if (!admission::is_gated(wire::rule_of(segment_.header), terms_.tenant_class))
        wire::charge(segment_, index_, gpu, until - since, until - since);
}

void Watcher::mind_gate(int gpu, uint64_t now, const Seen& seen) {
    wire::OnGpu& here = slot_.gpus[gpu];
    OnGpu& ours = gpus_[gpu];
    bool tolerant = wire::is_tolerant(slot_, gpu);
    if (tolerant != ours.tolerant && here.busy.load()) {
        ours.tolerant = tolerant;
        wire::refresh_gates(segment_, terms_.tenant_class + 1, gpu);
    }
    uint32_t rule = wire::rule_of(segment_.header);
    if (rule != ours.rule) {
        ours.rule = rule;
        wire::catch_up(segment_, index_, gpu);
        wire::refresh_gates(segment_, 0, gpu);
    }
    if (admission::is_asked_live(rule) && !seen.unfinished && !seen.called) LaunchRule::saw_empty(membership_, gpu);
    if (!admission::is_gated(rule, terms_.tenant_class)) {
        // Graphs and streams may hold gates from before.
        bool is_open = here.gate.load() == wire::kGateOpen && slot_.copy_gates[gpu].load() == wire::kGateOpen;
        if (!is_open) wire::refresh_gate(segment_, index_, gpu);
        return;
    }

    mind_bus(gpu, now);
    turns_.charge_executed(gpu, now, seen, has_equals_);
    uint64_t minded_ns = std::min(ours.minded_ns, now);
    uint64_t began_ns = std::clamp(membership_.burst_began_ns(gpu), minded_ns, now);
    float rested_us = static_cast<float>(began_ns - minded_ns) / 1000;
    float elapsed_us = static_cast<float>(now - began_ns) / 1000;
    uint64_t used_ns = here.used_ns.load();
    float used_us = static_cast<float>(used_ns - ours.used_ns) / 1000;
    activity_.show_in_flight(gpu);
    ours.minded_ns = now;
    ours.used_ns = used_ns;
    if (here.busy.load()) {
        float rate = static_cast<float>(wire::rate_of(here, now)) / 1000;
        bool above_is_busy = wire::is_above_busy(segment_, index_, gpu);
        ours.budgets.pass(rate, static_cast<float>(terms_.floor) / 1000,
                          {elapsed_us, used_us, above_is_busy, rested_us});
        here.over_rate.store(ours.budgets.over_rate());
        here.below_floor.store(ours.budgets.below_floor() || is_let_through(membership_, gpu, now));
    }
    mind_overlap(gpu, now, seen);
    mind_standstill(gpu, elapsed_us, seen);
    turns_.take_part(gpu, now, seen, has_equals_);
    if (timeline::is_on()) tell_timeline(gpu, now);
}

void Watcher::tell_timeline(int gpu, uint64_t now) {
    using timeline::Closed;
    const wire::OnGpu& here = slot_.gpus[gpu];
    bool has_work = here.busy.load(), only_copies = !here.ready.load();
    bool is_above =
        only_copies ? wire::is_above_copying(segment_, index_, gpu) : wire::is_above_busy(segment_, index_, gpu);
    Closed why = is_above && only_copies                      ? Closed::by_copying
                 : is_above                                   ? Closed::by_higher_class
                 : wire::holds_until(here.shut_until_ns, now) ? Closed::by_policy
                 : here.over_rate.load()                      ? Closed::over_rate
                                                              : Closed::by_equal;
    const wire::Flag& gate = only_copies ? slot_.copy_gates[gpu] : here.gate;
    timeline::saw_gate(gpu, has_work && gate.load() != wire::kGateOpen, why, now);
    timeline::saw_turn(gpu, has_work && has_equals_ && here.holds_turn.load(), now);
}

void Watcher::nap(uint64_t ns) {
    // Only an idle tenant's nap is worth being woken from.
    if (ns < kMillisecond || is_busy()) {
        wire::nap(ns);
        return;
    }
    doze(ns, Membership::soundly);
}

void Watcher::doze(uint64_t ns, uint32_t how) {
    membership_.watcher_sleep.store(how);
    if (!membership_.is_leaving() && !is_busy() && !leave_in_order::is_ending())
        wire::wait_here(membership_.watcher_sleep, how, ns);
    membership_.watcher_sleep.store(Membership::awake);
}

void Watcher::nap_between_looks(uint64_t ns) {
    uint64_t until = wire::now_ns() + ns;
    for (uint64_t now = until - ns; membership_.breakdown.is_timing() && now + kTimingNap < until;
         now = wire::now_ns()) {
        if (burst_age_ns(now) > kTimedNs || membership_.is_leaving()) break;
        nap(kTimingNap);
        look_at_start();
    }
    uint64_t now = wire::now_ns();
    if (now < until) nap_with_an_eye_open(until - now);
}

// In a shared segment nobody else can close our gate: we see for ourselves whether somebody goes first.
void Watcher::nap_with_an_eye_open(uint64_t ns) {
    bool gated = admission::is_gated(wire::rule_of(segment_.header), terms_.tenant_class);
    if (!wire::is_shared(segment_) || !gated || membership_.company.is_empty()) {
        // Whoever passes us the turn, or waits for ours, wakes us there.
        if (gated && has_equals_)
            nap_at_gate(ns);
        else
            nap(ns);
        return;
    }
    uint64_t until = wire::now_ns() + ns;
    do {
        nap(std::min(ns, kShortestNap));
        wire::look_at_rivals(segment_, index_, wire::Look::sparing);
        membership_.used_gpus.each([&](int gpu) {
            if (slot_.gpus[gpu].busy.load()) wire::refresh_gate(segment_, index_, gpu);
        });
    } while (wire::now_ns() < until && !membership_.is_leaving());
}

void Watcher::nap_at_gate(uint64_t ns) {
    for (int gpu = 0; gpu < wire::kGpus; ++gpu) {
        wire::Flag& gate = slot_.gpus[gpu].gate;
        if (!slot_.gpus[gpu].busy.load()) continue;
        // Who finds it changed since it looked naps all the same: somebody may write there without end.
        if (gate.load() != turns_.gate(gpu)) break;
        wire::wait_shared(gate, turns_.gate(gpu), ns);
        return;
    }
    nap(std::min(ns, kShortestNap));
}

// Equals: seldom, one was passed because it did not drain, or was taken for stopped. A lower class: its kernel was cut,
// or drains and is long.
void Watcher::mind_overlap(int gpu, uint64_t now, const Seen& seen) {
    OnGpu& ours = gpus_[gpu];
    if (!wire::is_below_on(segment_, index_, gpu)) ours.below_on_ns = now;
    bool is_below_on = now - std::min(now, ours.below_on_ns) > kMillisecond;
    if (seen.running && (is_below_on || wire::is_equal_on(segment_, index_, gpu))) overlapped_ns_ = now;
    mind_cut(gpu, now, seen);
    bool overlaps = overlapped_ns_ && now - overlapped_ns_ < kOverlapNs;
    if (slices_.note_overlap(overlaps)) slices_.mind(has_above_);
}

// Its kernel waits, cut, for a class that is not production.
void Watcher::mind_cut(int gpu, uint64_t now, const Seen& seen) {
    OnGpu& ours = gpus_[gpu];
    uint64_t passed_ns = now - std::min(now, std::exchange(ours.cut_looked_ns, now));
    bool is_closed = slot_.gpus[gpu].gate.load() != wire::kGateOpen;
    if (!seen.running || !is_closed)
        ours.cut_ns = 0;
    else if (wire::is_above_busy(segment_, index_, gpu) && !wire::is_production_at_work(segment_, gpu))
        ours.cut_ns += passed_ns;
    if (admission::shall_end(static_cast<float>(ours.cut_ns) / 1000, slices_.rest_us())) overlapped_ns_ = now;
}

void Watcher::mind_standstill(int gpu, float passed_us, const Seen& seen) {
    wire::OnGpu& here = slot_.gpus[gpu];
    // While something is captured no stream is asked, and all seem to run.
    bool is_free = seen.running && !seen.is_unknown && !captures.load() && here.on.load() &&
                   admission::is_cut_at(slot_.time_slice_us.load()) && !wire::is_above_busy(segment_, index_, gpu) &&
                   !wire::is_equal_on(segment_, index_, gpu);
    OnGpu& ours = gpus_[gpu];
    uint64_t ends = activity_.ends(gpu);
    bool has_ended = std::exchange(ours.ends, ends) != ends;
    ours.standstill.look(passed_us, is_free, has_ended, slices_.rest_us());
    if (slices_.note_standstill(gpu, ours.standstill.is_found())) slices_.mind(has_above_);
}

// What the administrator grants; a lane's is not above its process's either.
uint32_t Watcher::best_class() const {
    Membership* own = membership_.is_lane() ? Membership::current_if_joined() : nullptr;
    return std::max(own ? wire::class_of(own->slot()) : 0, wire::best_class_of_own(segment_));
}

// Its gates stay closed, so that work behind them does not begin, and no thread launches any more: what runs now is all
// that has to end.
void Watcher::drain_for_the_end() {
    uint64_t began = wire::now_ns(), deadline = began + leave_in_order::kPatienceNs;
    auto is_running = [&] {
        bool any = false;
        membership_.used_gpus.each([&](int gpu) {
            Seen seen = activity_.see(gpu);
            any |= seen.running || seen.copying || seen.is_unknown || (seen.needs_sms && !seen.standing);
            // A thread may be about to launch; the one that the signal has interrupted never goes on.
            any |= seen.called && wire::now_ns() - began < kOverlapNs;
        });
        return any;
    };
    membership_.used_gpus.each([&](int gpu) {
        if (!admission::is_gated(wire::rule_of(segment_.header), terms_.tenant_class)) return;
        // Only its owner writes these two, and until the end nothing else does.
        slot_.gpus[gpu].below_floor.store(0);
        slot_.gpus[gpu].over_rate.store(1);
        wire::refresh_gate(segment_, index_, gpu);
    });
    while (is_running() && wire::now_ns() < deadline && !membership_.is_leaving()) wire::nap(kMillisecond);
    // A graph may stand at a gate aside while the last kernels before it run: microseconds (graphs.cpp).
    wire::nap(kMillisecond);
    leave_in_order::note_drained(membership_.draining);
    while (!membership_.is_leaving()) wire::nap(leave_in_order::kPatienceNs);
}

void Watcher::change_class(uint32_t wanted) {
    uint32_t before = terms_.tenant_class;
    if (wanted >= wire::kClasses) return;
    wanted = std::max(wanted, best_class());
    if (wanted == before) return;
    terms_.tenant_class = wanted;
    wire::join_class(segment_, index_, static_cast<wire::Class>(terms_.tenant_class));
    membership_.used_gpus.each([&](int gpu) {
        if (slot_.gpus[gpu].busy.load()) wire::go_busy(segment_, index_, gpu);
        wire::refresh_gates(segment_, std::min(before, wanted), gpu);
    });
    look_around(wire::now_ns());
}

}  // namespace tenant
