// The watcher's loop: when have our streams run empty, is our gate as it should be, whose turn is it?
//
//   busy, with others below   every 50 to 200 us: are the streams empty, and have they been for the grace period?
//   busy, with equals         every 500 us, and while a turn is about to pass every 50 us (turn.cpp); one that waits
//   for
//                             its turn sleeps at its gate
//   busy otherwise            every 2 ms
//   idle                      a little longer at the fast pace (a burst seldom comes alone), then asleep until the next
//                             burst, with a look every 500 ms whether somebody asked for a change
//
// And every 20 ms while busy: bury the dead, see who is there, look at our gates again. One that is idle reads nothing
// of the others: when it goes busy it looks.
#include <sys/prctl.h>

#include <algorithm>
#include <cstring>

#include "admission/company.h"
#include "tenant/context.h"
#include "tenant/membership.h"
#include "tenant/membership_events.h"
#include "tenant/notice.h"
#include "wire/border.h"
#include "wire/sleep.h"

namespace tenant {

namespace {

constexpr uint64_t kMillisecond = 1000000;
constexpr uint64_t kCareNs = 20 * kMillisecond;
constexpr uint64_t kCalmNs = 2 * kMillisecond;
constexpr uint64_t kLookNs = 500 * kMillisecond;
constexpr uint64_t kGarbageNs = 100 * kMillisecond;
constexpr uint64_t kLingerNs = 20 * kMillisecond;
constexpr uint64_t kShortestNap = 50000, kLongestNap = 200000;
// While the start of a burst is timed.
constexpr uint64_t kTimingNap = 10000, kTimedNs = 5 * kMillisecond;

}  // namespace

void Membership::watch() {
    prctl(PR_SET_TIMERSLACK, 1000UL, 0, 0, 0);
    CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    driver.cuThreadExchangeStreamCaptureMode(&relaxed);
    uint64_t last_busy = 0, last_care = 0;
    while (!leaving_.load()) {
        look_at_start();
        uint64_t now = wire::now_ns();
        take_requests(now);
        if (now - last_care >= kCareNs) {
            last_care = now;
            mend_slot();
            beat(now);
            change_class(std::max(terms_.tenant_class, wire::best_class_of_own(*segment_)));
            look_around(now);
            tell<AtLook>([&](const AtLook& one) { one.act(*this, now); });
        }
        bool timing = samples.any_on_its_way();
        if (timing && try_lock()) {
            samples.collect(durations);
            unlock();
        }
        if (is_busy()) {
            last_busy = now;
            beat(now);
            for_each_used_gpu([&](int gpu) { look_at(gpu, now); });
            nap_between_looks(pace(now));
        } else if (now - last_busy < kLingerNs && (has_others_below_ || has_equals_)) {
            doze(kLongestNap, lightly);
        } else if (timing) {
            nap(kCalmNs);
        } else {
            nap(kLookNs);
        }
    }
}

void Membership::take_requests(uint64_t now) {
    wire::Asked asked;
    wire::Request found = wire::take_requests(*slot_, &asked);
    if (found == wire::Request::garbage) {
        // Somebody may be about to write the check word.
        if (!garbage_since_ns_) garbage_since_ns_ = now;
        if (now - garbage_since_ns_ > kGarbageNs) wire::forget_requests(*slot_);
        return;
    }
    garbage_since_ns_ = 0;
    if (found == wire::Request::none) return;
    if (asked.weight) slot_->weight.store(terms_.weight = std::max(asked.weight - 1, 1u));
    if (asked.slowdown) slot_->slowdown.store(terms_.slowdown = asked.slowdown - 1);
    if (asked.floor) slot_->floor.store(terms_.floor = asked.floor - 1);
    if (asked.tenant_class) change_class(asked.tenant_class - 1);
    if (asked.time_slice_us) asked_slice_us_ = asked.time_slice_us - 1;
    if (asked.tenant_class || asked.time_slice_us) mind_time_slice();
    tell<AtRequest>([&](const AtRequest& one) { one.act(*this, asked); });
}

// Others may have written anything into the slot.
void Membership::mend_slot() {
    if (!wire::keep_slot(*segment_, index_)) notice_once("another process has this one's slot in the segment");
    auto put = [](wire::Flag& word, uint32_t value) {
        if (word.load(std::memory_order_relaxed) != value) word.store(value);
    };
    put(slot_->weight, terms_.weight);
    put(slot_->slowdown, terms_.slowdown);
    put(slot_->floor, terms_.floor);
    if (memcmp(slot_->run_id, terms_.run_id, sizeof terms_.run_id) != 0)
        memcpy(slot_->run_id, terms_.run_id, sizeof terms_.run_id);
    if (memcmp(slot_->name, terms_.name, sizeof terms_.name) != 0) memcpy(slot_->name, terms_.name, sizeof terms_.name);
    if (slot_->tenant_class.load() != terms_.tenant_class)
        wire::join_class(*segment_, index_, static_cast<wire::Class>(terms_.tenant_class));
}

void Membership::look_around(uint64_t now) {
    uint32_t tenant_class = terms_.tenant_class, rule = wire::rule_of(segment_->header);
    uint32_t lowest = wire::kClasses - 1;
    // Whoever is kept waiting by the dead has work, and looks itself.
    if (is_busy() && (tenant_class != wire::production || wire::is_shared(*segment_))) wire::bury_the_dead(*segment_);
    has_others_below_ = has_equals_ = has_above_ = false;
    for_each_used_gpu([&](int gpu) {
        wire::OnGpu& here = slot_->gpus[gpu];
        bool below = tenant_class < lowest && wire::anybody_else(*segment_, index_, gpu, tenant_class + 1, lowest);
        bool equals = wire::anybody_else(*segment_, index_, gpu, tenant_class, tenant_class);
        bool above = tenant_class > 0 && wire::anybody_else(*segment_, index_, gpu, 0, tenant_class - 1);
        bool steered = wire::holds_until(here.shut_until_ns, now) || here.rate.load();
        has_others_below_ |= below;
        has_equals_ |= equals;
        has_above_ |= above;
        uint32_t bit = 1u << gpu;
        if (below)
            below_.fetch_or(bit);
        else
            below_.fetch_and(~bit);
        if (!admission::is_gated(rule, tenant_class))
            breakdown_.weigh(*slot_, gpu, !wire::anybody_at_work(*segment_, index_, gpu), now);
        if (admission::has_company(rule, {above, equals, below}, steered))
            company_.fetch_or(bit);
        else
            company_.fetch_and(~bit);
        mind_gate(gpu, now, see_streams(gpu));
    });
    mind_time_slice();
}

void Membership::look_at(int gpu, uint64_t now) {
    if (!slot_->gpus[gpu].busy.load()) return;
    Seen seen = see_streams(gpu);
    look_for_idleness(gpu, now, seen);
    mind_gate(gpu, now, seen);
}

// When it began is known as closely as looks come: soon after another, for as long as such a wait may last.
void Membership::look_at_start() {
    if (!breakdown_.is_timing() || captures.load() || !try_lock()) return;
    if (!captures.load()) breakdown_.look_at_start(*slot_, wire::now_ns());
    unlock();
}

uint64_t Membership::pace(uint64_t now) const {
    if (has_others_below_) {
        // The longer a burst has lasted, the less it matters to see its end at once; each look takes the driver's lock.
        uint64_t patience = is_pausing() ? 0 : burst_age_ns(now) / 16;
        return std::clamp(std::max(grace_ns() / 4, patience), kShortestNap, kLongestNap);
    }
    return has_equals_ ? pace_of_turns() : kCalmNs;
}

bool Membership::is_busy() const {
    for (const wire::OnGpu& gpu : slot_->gpus)
        if (gpu.busy.load()) return true;  // in this order after `asleep_`: see nap
    return false;
}

bool Membership::is_pausing() const {
    for (const Pause& pause : pauses_)
        if (pause.on) return true;
    return false;
}

uint64_t Membership::burst_age_ns(uint64_t now) const {
    uint64_t began = now;
    for (int gpu = 0; gpu < wire::kGpus; ++gpu)
        if (slot_->gpus[gpu].busy.load(std::memory_order_relaxed))
            began = std::min(began, burst_began_ns_[gpu].load(std::memory_order_relaxed));
    return now - began;
}

bool Membership::is_empty(StreamState& state) {
    if (state.is_per_thread()) {
        CUevent last_work = state.last_work.load(std::memory_order_acquire);
        return !last_work || driver.cuEventQuery(last_work) != CUDA_ERROR_NOT_READY;
    }
    if (current_context() != state.context && driver.cuCtxSetCurrent(state.context) != CUDA_SUCCESS) return true;
    // An error (a context that has failed) is an end too.
    return driver.cuStreamQuery(state.handle) != CUDA_ERROR_NOT_READY;
}

void Membership::beat(uint64_t now) {
    bool was_stale = wire::is_stale(*segment_, slot_->heartbeat_ns.exchange(now));
    // We were stopped, and others have rightly gone ahead.
    for (int gpu = 0; was_stale && gpu < wire::kGpus; ++gpu)
        if (slot_->gpus[gpu].busy.load()) wire::go_busy(*segment_, index_, gpu);
}

uint64_t Membership::grace_ns() const {
    float fallback_us = static_cast<float>(wire::grace_us(segment_->header.knobs));
    return static_cast<uint64_t>(grace_.us(fallback_us) * 1000);
}

void Membership::look_for_idleness(int gpu, uint64_t now, const Seen& seen) {
    Pause& pause = pauses_[gpu];
    bool at_work = seen.is_at_work();
    breakdown_.saw_streams(slot_->gpus[gpu], gpu, !seen.unfinished, at_work, burst_began_ns_[gpu].load(), now);
    if (at_work) {
        if (pause.on) {
            // A pause that was given away ended with the launch that made us busy again.
            uint64_t began = burst_began_ns_[gpu].load();
            uint64_t end = began > pause.since_ns && began < now ? began : now;
            grace_.saw_pause(static_cast<float>(end - pause.since_ns) / 1000);
            slot_->grace_us.store(static_cast<uint32_t>(grace_ns() / 1000));
        }
        pause.on = false;
        account(gpu, now);
        return;
    }
    if (!pause.on) pause = {now, true};
    account(gpu, pause.since_ns);
    if (now - pause.since_ns < grace_ns()) return;
    slot_->gpus[gpu].busy.store(0);
    // Either a launch in this moment sees that we are idle, or we see the launch. Once we have looked, `busy` is the
    // launching thread's again.
    Seen now_seen = see_streams(gpu);
    if (now_seen.is_at_work())
        become_busy(gpu);
    else {
        breakdown_.saw_idle(gpu);
        wire::refresh_gates(*segment_, terms_.tenant_class, gpu);
    }
}

// A burst lasts from the launch that began it to when the streams were first seen empty.
void Membership::account(int gpu, uint64_t until) {
    wire::OnGpu& here = slot_->gpus[gpu];
    uint64_t since = std::max(accounted_ns_[gpu], burst_began_ns_[gpu].load());
    if (until <= since) return;
    accounted_ns_[gpu] = until;
    here.busy_ns.fetch_add(until - since, std::memory_order_relaxed);
    if (!admission::is_gated(wire::rule_of(segment_->header), terms_.tenant_class))
        wire::charge(*segment_, index_, gpu, until - since);
}

void Membership::mind_gate(int gpu, uint64_t now, const Seen& seen) {
    wire::OnGpu& here = slot_->gpus[gpu];
    bool tolerant = wire::is_tolerant(*slot_, gpu);
    if (tolerant != was_tolerant_[gpu] && here.busy.load()) {
        was_tolerant_[gpu] = tolerant;
        wire::refresh_gates(*segment_, terms_.tenant_class + 1, gpu);
    }
    uint32_t rule = wire::rule_of(segment_->header);
    if (rule != rules_then_[gpu]) {
        rules_then_[gpu] = rule;
        wire::catch_up(*segment_, index_, gpu);
        wire::refresh_gates(*segment_, 0, gpu);
    }
    if (!admission::is_gated(rule, terms_.tenant_class)) {
        // Graphs and streams may hold gates from before.
        if (here.gate.load() != wire::kGateOpen) wire::refresh_gate(*segment_, index_, gpu);
        return;
    }

    charge_executed(gpu, now, seen);
    float elapsed_us = static_cast<float>(now - std::min(now, minded_ns_[gpu])) / 1000;
    uint64_t used_ns = here.used_ns.load();
    float used_us = static_cast<float>(used_ns - used_then_ns_[gpu]) / 1000;
    double done = done_us(gpu);
    // A stream that was destroyed took what it had done with it.
    float did_us = static_cast<float>(std::max(done - done_then_us_[gpu], 0.0));
    minded_ns_[gpu] = now;
    used_then_ns_[gpu] = used_ns;
    done_then_us_[gpu] = done;
    if (here.busy.load()) {
        float rate = static_cast<float>(std::min(here.rate.load(), 1000u)) / 1000;
        budgets_[gpu].pass(rate, static_cast<float>(terms_.floor) / 1000, elapsed_us, used_us, did_us);
        here.over_rate.store(budgets_[gpu].over_rate());
        here.below_floor.store(budgets_[gpu].below_floor());
    }
    take_part_in_turns(gpu, now, seen);
}

// Microseconds of work known to be done, of all streams; also shows what is in flight.
double Membership::done_us(int gpu) {
    double queued = 0, in_flight = 0;
    if (!try_lock()) return done_then_us_[gpu];
    streams.for_each([&](StreamState& state) {
        if (state.gpu != gpu) return;
        queued += static_cast<double>(state.queued_ns.load(std::memory_order_relaxed)) / 1000;
        in_flight += progress.in_flight_us(state);
    });
    unlock();
    slot_->gpus[gpu].in_flight_us.store(static_cast<uint32_t>(std::min(in_flight, 4e9)));
    return queued - in_flight;
}

void Membership::mind_time_slice() {
    uint32_t tenant_class = terms_.tenant_class;
    bool beside_production = false, beside_floor = false;
    if (tenant_class == wire::production)
        for_each_used_gpu([&](int gpu) {
            beside_production |= wire::anybody_else(*segment_, index_, gpu, wire::production, wire::production);
            beside_floor |= wire::any_floor(*segment_, gpu);
        });
    bool shares = admission::shares_slices(tenant_class, terms_.floor != 0, beside_production, beside_floor);
    if (wire::rule_of(segment_->header) == admission::none) tenant_class = wire::standard;  // the driver's own
    Durations::Noted noted = durations.take_noted();
    cutting_.look(static_cast<double>(wire::now_ns()) / 1000, noted.us, noted.squares, cut_cost_us_);
    admission::Slicing slicing{tenant_class, shares, terms_.weight, has_above_, cutting_.cuts(), overlaps_};
    admission::TimeSlices wanted{asked_slice_us_ ? asked_slice_us_ : admission::time_slice_for(slicing),
                                 admission::copy_slice_for(slicing)};
    if (wanted == slices_) return;
    slices_ = wanted;
    set_time_slices(wanted);
    slot_->time_slice_us.store(time_slice().granted_us);
    slot_->time_slice_refused.store(time_slice().refused);
}

void Membership::nap(uint64_t ns) {
    // Only an idle tenant's nap is worth being woken from.
    if (ns < kMillisecond || is_busy()) {
        wire::nap(ns);
        return;
    }
    doze(ns, soundly);
}

void Membership::doze(uint64_t ns, uint32_t how) {
    asleep_.store(how);
    if (!leaving_.load() && !is_busy()) wire::wait_here(asleep_, how, ns);
    asleep_.store(awake);
}

void Membership::nap_between_looks(uint64_t ns) {
    uint64_t until = wire::now_ns() + ns;
    for (uint64_t now = until - ns; breakdown_.is_timing() && now + kTimingNap < until; now = wire::now_ns()) {
        if (burst_age_ns(now) > kTimedNs || leaving_.load()) break;
        nap(kTimingNap);
        look_at_start();
    }
    uint64_t now = wire::now_ns();
    if (now < until) nap_with_an_eye_open(until - now);
}

// In a shared segment nobody else can close our gate: we see for ourselves whether somebody goes first.
void Membership::nap_with_an_eye_open(uint64_t ns) {
    bool gated = admission::is_gated(wire::rule_of(segment_->header), terms_.tenant_class);
    if (!wire::is_shared(*segment_) || !gated || !company_.load()) {
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
        wire::look_at_rivals(*segment_, index_, wire::Look::sparing);
        for_each_used_gpu([&](int gpu) {
            if (slot_->gpus[gpu].busy.load()) wire::refresh_gate(*segment_, index_, gpu);
        });
    } while (wire::now_ns() < until && !leaving_.load());
}

void Membership::nap_at_gate(uint64_t ns) {
    for (int gpu = 0; gpu < wire::kGpus; ++gpu) {
        wire::Flag& gate = slot_->gpus[gpu].gate;
        if (!slot_->gpus[gpu].busy.load()) continue;
        // Who finds it changed since it looked naps all the same: somebody may write there without end.
        if (gate.load() != turns_[gpu].gate) break;
        wire::wait_shared(gate, turns_[gpu].gate, ns);
        return;
    }
    nap(std::min(ns, kShortestNap));
}

void Membership::change_class(uint32_t wanted) {
    uint32_t before = terms_.tenant_class;
    if (wanted >= wire::kClasses || wanted == before) return;
    terms_.tenant_class = std::max(wanted, wire::best_class_of_own(*segment_));
    wire::join_class(*segment_, index_, static_cast<wire::Class>(terms_.tenant_class));
    for_each_used_gpu([&](int gpu) {
        if (slot_->gpus[gpu].busy.load()) wire::go_busy(*segment_, index_, gpu);
        wire::refresh_gates(*segment_, std::min(before, wanted), gpu);
    });
    look_around(wire::now_ns());
}

}  // namespace tenant
