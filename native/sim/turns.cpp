// What is charged to a tenant, and whose turn it is among equals: the mirror of the live tenants, by the same rules
// (admission/turns.h). Copies to and from the host take no turns and are charged to none.
#include "admission/turns.h"

#include <algorithm>
#include <cmath>

#include "sim/gpu.h"

namespace sim {

namespace {

constexpr double kBesideUs = admission::kBriefTurnNs / 1000.0;
constexpr double kTurnPrecision = 0.01;  // of a turn: how exactly its end is met

uint64_t ns(double us) { return static_cast<uint64_t>(std::max(us, 0.0) * 1000); }

}  // namespace

// ---- GPU time -------------------------------------------------------------------------------------------------------

// A tenant that passes gates is charged what was executed for it; others, as before, the time in which they had work.
void Gpu::charge(Tenant& t) {
    bool executes = is_gated(t);
    if (t.state == State::running && executes) progress(t);
    double executed = t.figures.executed_us - t.charged_executed_us;
    t.charged_executed_us = t.figures.executed_us;
    double us = now_ - t.charged_us;
    t.charged_us = now_;
    if (t.state == State::away || t.state == State::gone) return;
    bool is_held = !t.gate_of(t.kind).open;
    double busy = 0;
    if (t.busy) {
        // A burst ends when the stream has become empty, not when that has lasted for the grace period.
        double until = is_empty(t) ? t.empty_us : now_;
        busy = std::max(until - t.busy_until_us, 0.0);
        t.busy_until_us += busy;
        t.figures.busy_us += busy;
        if (is_held) t.figures.held_us += us;
    }
    double used = executes ? executed : t.state != State::asking ? busy : 0;
    auto elapsed = static_cast<float>(us);
    admission::Budgets::Passed passed{0, 0, t.above_is_busy, elapsed};
    if (t.busy) passed = {elapsed, static_cast<float>(used), t.above_is_busy};
    t.budgets.pass(static_cast<float>(t.knobs.rate), static_cast<float>(t.job->floor), passed);
    t.figures.used_us += used;
    uint64_t executed_ns = ns(t.figures.executed_us);
    t.turn_key_ns += admission::charged_ns(t.turn_charge.owed_ns(executed_ns - t.keyed_ns), weight_of(*t.job));
    t.keyed_ns = executed_ns;
    t.turn_us += executed;
    if (!t.seen_on || t.gate.open)
        t.cut_for_us = 0;
    else if (t.above_is_busy && !t.production_is_busy)
        t.cut_for_us += us;
    if (t.holds_turn || !t.seen_on)
        t.drain_us = 0;
    else if (!t.above_is_busy)
        t.drain_us += us;
}

bool Gpu::share_turns(const Tenant& a, const Tenant& b) const {
    return admission::equals_of(knobs.rule, a.job->tenant_class).have(b.job->tenant_class);
}

// For a tenant that has got work.
void Gpu::catch_up(Tenant& t) {
    uint64_t least = admission::kNoKey;
    for (uint32_t i : with_work_) {
        Tenant& other = tenants_[i];
        if (i == t.number || !share_turns(t, other)) continue;
        charge(other);
        least = std::min(least, other.turn_key_ns);
    }
    t.turn_key_ns = admission::key_with_work(t.turn_key_ns, least);
}

// For a tenant that is ready again.
void Gpu::claim(Tenant& t) {
    if (!is_gated(t)) return;
    uint64_t most = 0;
    for (const Tenant& other : tenants_) {
        if (uses(other) && other.number != t.number && share_turns(t, other)) most = std::max(most, other.turn_key_ns);
    }
    t.turn_key_ns = admission::key_when_ready(t.turn_key_ns, most);
    uint32_t ready = rounds_[round_of(t)].ready + 1;
    uint64_t executed = ns(t.turn_us), away = ns(std::max(now_ - t.gave_us, 0.0));
    t.brief_ns = admission::brief_ns(executed, away, ns(switch_us()), ready);
    admission::Returning returning{executed, away, t.turn_key_ns, admission::kNoKey, has_above(t), false, ready};
    for (uint32_t i : with_work_) {
        const Tenant& other = tenants_[i];
        if (i == t.number || !share_turns(t, other) || !is_ready(other)) continue;
        returning.any_beside |= other.beside;
        if (!other.beside) returning.least_key_ns = std::min(returning.least_key_ns, other.turn_key_ns);
    }
    t.beside = !t.is_brief && admission::runs_beside(returning);
    if (t.beside) t.turn_us = 0;
}

bool Gpu::has_above(const Tenant& t) const {
    return std::any_of(tenants_.begin(), tenants_.end(), [&](const Tenant& other) {
        return uses(other) && other.job->tenant_class < t.job->tenant_class;
    });
}

// For the tenants whose streams have run empty.
void Gpu::forgo_turns() {
    for (uint32_t i : with_work_) {
        Tenant& t = tenants_[i];
        if (!t.seen_ready || is_barred(t) || is_ready(t)) continue;
        uint64_t least = admission::kNoKey;
        for (uint32_t other : with_work_)
            if (other != i && share_turns(t, tenants_[other]) && is_ready(tenants_[other]))
                least = std::min(least, tenants_[other].turn_key_ns);
        t.turn_key_ns = admission::key_when_empty(t.turn_key_ns, least);
        t.gave_us = now_;
    }
}

// ---- whose turn it is -----------------------------------------------------------------------------------------------

double Gpu::turn_us(const Round& round, const Tenant& t) const {
    if (knobs.turn_us > 0) return knobs.turn_us;
    uint64_t brief_ns = admission::kNotBrief;
    if (round.brief > 0)
        for (uint32_t i : with_work_)
            if (i != t.number && tenants_[i].seen_ready && !tenants_[i].beside && share_turns(t, tenants_[i]))
                brief_ns = std::min(brief_ns, brief_ns_of(tenants_[i]));
    return static_cast<double>(admission::turn_ns(ns(switch_us()), round.ready, brief_ns)) / 1000;
}

// What has been cut in the middle is on; what has passed its gate is about to be.
bool Gpu::is_on(const Tenant& t) const {
    if (is_host_copy(t.kind)) return false;
    return t.state == State::running || (t.state == State::thinking && (t.passed || t.cpu_us <= now_));
}

// The turn outlasts a gap until a look has ended it.
bool Gpu::is_ready(const Tenant& t) const {
    if (is_barred(t)) return false;
    if (is_on(t)) return true;
    if (t.state == State::held && !is_host_copy(t.kind)) return t.comes_us == never;
    return t.holds_turn && !t.found_empty;
}

admission::Equal Gpu::as_equal(const Tenant& t) const {
    return {t.turn_key_ns,
            t.number,
            is_ready(t) && !t.beside,
            t.holds_turn,
            counts_as_on(t) && !t.below_floor && !t.beside,
            ns(t.drain_us) >= admission::kDrainNs,
            brief_ns_of(t)};
}

void Gpu::end_turns() {
    for (uint32_t i : with_work_) {
        Tenant& t = tenants_[i];
        if (t.beside && (t.turn_us > kBesideUs || has_above(t))) t.beside = false;
        if (!t.holds_turn) continue;
        const Round& round = rounds_[round_of(t)];
        bool ready = is_ready(t), others = round.ready > (ready ? 1u : 0u);
        bool is_over = admission::is_over({ns(t.turn_us), ns(turn_us(round, t)), ns(switch_us()), !ready, UINT64_MAX});
        if (!is_gated(t) || is_barred(t) || (others && is_over)) t.holds_turn = false;
        if (ready && !t.holds_turn) t.brief_ns = admission::kNotBrief;
    }
}

void Gpu::look_at_rounds() {
    for (Round& round : rounds_) round = Round();
    uint32_t here[4] = {};
    is_contended_ = false;
    for (uint32_t i : with_work_) {
        Tenant& t = tenants_[i];
        t.seen_on = t.seen_ready = false;
        if (!is_gated(t)) continue;
        admission::Equal equal = as_equal(t);
        Round& round = rounds_[round_of(t)];
        is_contended_ = ++here[round_of(t)] > 1 || is_contended_;
        t.seen_on = is_on(t);
        t.seen_ready = equal.is_ready || (t.beside && is_ready(t));
        if (equal.is_on && !equal.is_overdue && round.on < 2) round.some_on[round.on++] = i;
        if (!equal.is_ready) continue;
        ++round.ready;
        round.brief += equal.brief_ns != admission::kNotBrief;
        bool wins = round.first == Timers::nobody || admission::goes_before(equal, as_equal(tenants_[round.first]));
        if (wins) round.first = i;
    }
}

bool Gpu::may_start(const Tenant& t, const Round& round) const {
    if (t.beside) return true;
    admission::Equal self = as_equal(t);
    if (!self.is_ready && round.first != Timers::nobody) return false;
    for (uint32_t other : {round.first, round.some_on[0], round.some_on[1]})
        if (other != Timers::nobody && other != t.number && admission::waits_for(self, as_equal(tenants_[other])))
            return false;
    return true;
}

void Gpu::take_turn(Tenant& t) {
    if (t.waits_since_us != never)
        t.figures.longest_wait_us = std::max(t.figures.longest_wait_us, now_ - t.waits_since_us);
    t.waits_since_us = never;
    if (t.holds_turn) return;
    t.holds_turn = true;
    t.found_empty = t.was_empty = false;
    t.looked_us = now_;
    ++t.looks;
    t.look_us = never;
    t.turn_us = t.gaps_us = 0;
    t.turn_key_ns += admission::charged_ns(t.turn_charge.begin(ns(switch_us())), weight_of(*t.job));
}

// When something about turns may change because of this tenant, though nothing happens.
double Gpu::turn_edge_us(const Tenant& t) const {
    const Round& round = rounds_[round_of(t)];
    if (t.beside && t.seen_on) return now_ + std::max(kBesideUs - t.turn_us, kTurnPrecision * kBesideUs);
    if (round.ready == 0 || t.above_is_busy) return never;
    if (!t.holds_turn) return t.seen_on ? now_ + std::max(admission::kDrainNs / 1000.0 - t.drain_us, 1.0) : never;
    if (!t.seen_on) return never;
    if (round.ready < 2) return never;
    double turn = turn_us(round, t);
    return now_ + std::max(turn - t.turn_us, kTurnPrecision * turn);
}

// To be called when the tenant may have come on or gone off the GPU, or have run empty.
void Gpu::note_turn(Tenant& t) {
    if (!is_contended_ || !t.busy || !is_gated(t)) return;
    bool on = is_on(t);
    if (t.state == State::held && t.after_copy && !t.seen_ready && t.comes_us == never) t.comes_us = copying_look_us(t);
    edge_us_ = std::min(edge_us_, look_edge_us(t));
    bool ready = is_ready(t);
    if (on == t.seen_on && ready == t.seen_ready) return;
    if (ready && !t.seen_ready) become_ready(t);
    refresh_gates();
}

}  // namespace sim
