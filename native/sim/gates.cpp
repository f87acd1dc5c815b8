// Which tenants have work and which may run: the mirror of native/wire/gates.cpp and of the watcher, by the same
// admission rules.
#include <algorithm>
#include <cmath>
#include <utility>

#include "admission/company.h"
#include "sim/gpu.h"

namespace sim {

namespace {

constexpr double kLookUs = 500;          // how often the watcher looks at rates and floors
constexpr double kShortestInnerUs = 10;  // gates inside a graph are no closer than its kernels are long

// When a share's credit is used up, or enough of it saved: at the soonest, since what is used may be less than `used`.
double look_again_us(const admission::Share& share, double of, double used) {
    double credit = share.credit_us();
    double us = share.in_credit() ? (used > of ? credit / (used - of) : never)
                                  : (used < of ? (share.turn_us() - credit) / (of - used) : never);
    return std::max(us, kLookUs);
}

}  // namespace

// The streams must have been empty at two looks, with nothing between.
double Gpu::grace_us(const Tenant& t) const {
    double us = t.grace.us(static_cast<float>(machine_.grace_us));
    return std::max(us, machine_.interference.watch_us);
}

void Gpu::see_pause(Tenant& t, double since_us, double until_us) {
    if (until_us - since_us >= machine_.interference.watch_us && t.figures.operations)
        t.grace.saw_pause(since_us, until_us);
}

void Gpu::go_busy(Tenant& t) {
    charge(t);
    t.busy = true;
    t.busy_until_us = now_;
    t.mean_gaps = admission::gaps_in_a_burst(t.mean_gaps, std::exchange(t.gaps, 0));
    ++t.figures.bursts;
    with_work_.push_back(t.number);
    catch_up(t);
    claim(t);
    refresh_gates();
}

void Gpu::go_idle(Tenant& t) {
    charge(t);
    if (t.seen_ready) t.gave_us = now_;
    t.busy = t.holds_turn = t.seen_on = t.seen_ready = false;
    t.look_us = t.leaves_us = t.comes_us = never;
    t.waits_since_us = never;
    with_work_.erase(std::find(with_work_.begin(), with_work_.end(), t.number));
    refresh_gates();
}

// An operation that was launched while the gate was closed has a gate in front of it, however much is queued.
bool Gpu::must_pass_gate(Tenant& t, double launched_us) {
    bool was_open = t.gate_of(t.kind).was_open(launched_us);
    admission::Knobs rule{knobs.rule, static_cast<float>(knobs.gate_every_us), static_cast<float>(knobs.in_flight_us)};
    float us = static_cast<float>(t.op_us);
    admission::Seen seen{t.job->tenant_class, has_company(t), was_open, t.since_gate_us, 0, us};
    bool gated = admission::admit(rule, seen) == admission::Verdict::gate;
    t.since_gate_us = gated ? us : t.since_gate_us + us;
    note_length(t);
    if (gated) ++t.figures.gates;
    return gated;
}

void Gpu::note_length(Tenant& t) {
    if (is_copy(t.kind)) return;
    double piece = t.kind == Kind::graph ? std::min(t.op_us, std::max(knobs.gate_every_us, kShortestInnerUs)) : t.op_us;
    t.cutting.look(now_, t.op_us, t.op_us * piece, admission::kCutCostUs);
}

bool Gpu::has_company(const Tenant& t) const {
    admission::Others others{};
    for (uint32_t i = 0; i < 4; ++i) {
        bool here = here_[i] > 0;
        others.above |= here && i < t.job->tenant_class;
        others.below |= here && i > t.job->tenant_class;
    }
    others.equal = here_[t.job->tenant_class] > 1;
    return admission::has_company(knobs.rule, others, t.knobs.shut || t.knobs.rate > 0);
}

bool Gpu::is_equal_at_work(const Tenant& t) const {
    return std::any_of(with_work_.begin(), with_work_.end(), [&](uint32_t i) {
        return i != t.number && tenants_[i].job->tenant_class == t.job->tenant_class;
    });
}

// ---- gates inside graphs --------------------------------------------------------------------------------------------

// Time that is not work.
void Gpu::add_inner_gates(Tenant& t) {
    if (t.kind != Kind::graph || !is_gated(t)) return;
    double count = std::floor(t.op_us / std::max(knobs.gate_every_us, kShortestInnerUs));
    t.left_us += count * machine_.interference.gate_us;
    t.figures.work_us -= count * machine_.interference.gate_us;
    t.figures.gates += static_cast<uint64_t>(count);
}

// A long graph goes on to its next gate.
void Gpu::stop_inside(Tenant& t) {
    if (t.kind != Kind::graph || t.state != State::running || t.rest_us > 0) return;
    progress(t);
    double every = std::max(knobs.gate_every_us, kShortestInnerUs);
    double to_gate = t.left_us - every * std::floor(t.left_us / every);
    if (to_gate >= t.left_us) return;
    t.rest_us = t.left_us - to_gate;
    t.left_us = to_gate;
    if (t.rate > 0) t.end_us = now_ + t.left_us / t.rate;
    changed_ = true;
}

void Gpu::go_on_inside(Tenant& t) {
    if (t.rest_us <= 0) return;
    progress(t);
    t.left_us += t.rest_us;
    t.rest_us = 0;
    if (t.rate > 0) t.end_us = now_ + t.left_us / t.rate;
    changed_ = true;
}

// ---- gates ----------------------------------------------------------------------------------------------------------

void Gpu::refresh_gates() {
    edge_us_ = never;
    look_due();
    bool gates = knobs.rule == admission::strict || knobs.rule == admission::fair;
    bool busy_above[4] = {}, copies_above[4] = {};  // at [c]: a tenant of a class before c, which tolerates no overlap
    for (uint32_t i : with_work_) {
        Tenant& t = tenants_[i];
        charge(t);
        t.over_rate = t.budgets.over_rate();
        t.below_floor = t.budgets.below_floor();
        if (t.below_floor) note_below(t);
        for (uint32_t below = t.job->tenant_class + 1; below < 4 && !t.knobs.tolerant; ++below)
            busy_above[below] = true;
    }
    for (const std::vector<uint32_t>* copies : {&to_device_, &to_host_})
        for (uint32_t i : *copies)
            for (uint32_t below = tenants_[i].job->tenant_class + 1; below < 4 && !tenants_[i].knobs.tolerant; ++below)
                copies_above[below] = true;
    forgo_turns();
    look_at_rounds();
    end_turns();
    look_at_rounds();
    for (uint32_t i : with_work_) {
        Tenant& t = tenants_[i];
        bool gated = gates && is_gated(t), above_is_busy = busy_above[t.job->tenant_class];
        t.above_is_busy = gated && knobs.rule == admission::strict && above_is_busy;
        t.production_is_busy = busy_above[admission::kProduction + 1];
        bool has_turn = !gated || may_start(t, rounds_[round_of(t)]);
        admission::Standing now{t.job->tenant_class, above_is_busy, has_turn, t.knobs.shut, t.over_rate, t.below_floor};
        bool goes = !gated || admission::may_run(knobs.rule, now);
        set_gate(t, t.gate, goes);
        set_gate(t, t.link_gate, !gated || admission::may_copy(knobs.rule, now, copies_above[t.job->tenant_class]));
        if (!gated) continue;
        if (goes && has_turn && t.seen_ready && !t.beside) take_turn(t);
        if (!goes && t.seen_ready && t.waits_since_us == never) t.waits_since_us = now_;
        if (is_contended_) edge_us_ = std::min({edge_us_, turn_edge_us(t), look_edge_us(t)});
        if (t.knobs.rate > 0)
            edge_us_ = std::min(edge_us_, now_ + look_again_us(t.budgets.of_rate(), t.knobs.rate, goes));
        if (t.job->floor > 0) {
            double most = t.below_floor ? 1 : 0;  // of its time spent working: what brings the next change soonest
            edge_us_ = std::min(edge_us_, now_ + look_again_us(t.budgets.of_floor(), t.job->floor, most));
        }
    }
}

void Gpu::set_gate(Tenant& t, Gate& gate, bool open) {
    if (gate.open == open) return;
    gate.open = open;
    bool is_at_it = &gate == &t.gate_of(t.kind);
    if (!open) {
        gate.closed_us = now_;
        if (is_at_it) stop_inside(t);
        return;
    }
    gate.opened_us = now_;
    if (&gate == &t.gate) t.leaves_us = never;
    if (!is_at_it) return;
    if (t.state == State::running) go_on_inside(t);
    if (t.state != State::held) return;
    t.passed = true;
    t.ready_us = now_ + machine_.interference.open_us;
    t.state = State::thinking;
    t.idle_us = never;
    set_alarm(t);
}

}  // namespace sim
