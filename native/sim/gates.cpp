// Who has work and who may run: the mirror of native/wire/segment.cpp and of the watcher, by the same admission rules.
#include <algorithm>
#include <cmath>

#include "sim/gpu.h"

namespace sim {

namespace {

constexpr double kShortestEdgeUs = 1;
constexpr double kLookUs = 500;          // how often the watcher looks at rates and floors
constexpr double kShortestInnerUs = 10;  // gates inside a graph are no closer than its kernels are long

// When a share's credit is used up, or enough of it saved: at the soonest, since what is used may be less than `used`.
double look_again_us(const tenant::Share& share, double of, double used) {
    double credit = share.credit_us();
    double us = share.in_credit() ? (used > of ? credit / (used - of) : never)
                                  : (used < of ? (tenant::Share::kTurnUs - credit) / (of - used) : never);
    return std::max(us, kLookUs);
}

}  // namespace

double Gpu::grace_us(const Tenant& t) const { return t.grace.us(static_cast<float>(machine_.grace_us)); }

void Gpu::see_pause(Tenant& t, double us) {
    if (us >= machine_.interference.watch_us && t.figures.operations) t.grace.saw_pause(static_cast<float>(us));
}

void Gpu::go_busy(Tenant& t) {
    charge(t);
    t.busy = true;
    ++t.figures.bursts;
    with_work_.push_back(t.number);
    catch_up(t);
    refresh_gates();
}

void Gpu::go_idle(Tenant& t) {
    charge(t);
    t.busy = t.holds_turn = false;
    with_work_.erase(std::find(with_work_.begin(), with_work_.end(), t.number));
    refresh_gates();
}

// An operation that was launched while the gate was closed has a gate in front of it, however much is queued.
bool Gpu::must_pass_gate(Tenant& t) {
    bool was_open = t.gate_open ? t.cpu_us < t.closed_us || t.cpu_us >= t.opened_us : t.cpu_us < t.closed_us;
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
    t.recent_kernels.pass(now_ - t.noted_us);
    t.noted_us = now_;
    double piece = t.kind == Kind::graph ? std::min(t.op_us, std::max(knobs.gate_every_us, kShortestInnerUs)) : t.op_us;
    t.recent_kernels.saw(t.op_us, t.op_us * piece);
    t.cuts = admission::shall_cut(t.cuts, t.recent_kernels.rest_us(), admission::kCutCostUs);
}

// Somebody is here whom it may have to wait for, or a controller steers it.
bool Gpu::has_company(const Tenant& t) const {
    if (t.knobs.shut || t.knobs.rate > 0) return true;
    uint32_t last = knobs.rule == admission::fair ? 3 : t.job->tenant_class, others = 0;
    for (uint32_t i = 0; i <= last; ++i) others += here_[i];
    return others > 1;
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

// ---- GPU time and what is due ---------------------------------------------------------------------------------------

void Gpu::charge(Tenant& t) {
    double us = now_ - t.charged_us;
    t.charged_us = now_;
    if (us <= 0 || t.state == State::away || t.state == State::gone) return;
    double used = t.busy && t.gate_open && t.state != State::asking ? us : 0;
    if (t.busy) {
        t.figures.busy_us += us;
        if (!t.gate_open) t.figures.held_us += us;
        if (t.knobs.rate > 0)
            t.of_rate.pass(static_cast<float>(t.knobs.rate), static_cast<float>(us), static_cast<float>(used));
    }
    if (t.job->floor > 0) {
        if (t.state == State::running) progress(t);
        float did = static_cast<float>(t.figures.work_us - t.floor_work_us);
        if (t.busy) t.of_floor.pass(static_cast<float>(t.job->floor), static_cast<float>(us), did);
        t.floor_work_us = t.figures.work_us;
    }
    t.figures.used_us += used;
    t.turn_key_us += used / t.job->weight;
}

// One that was idle comes back neither with the right to all the time that the others have used meanwhile, nor with a
// debt from when it had the GPU to itself.
void Gpu::catch_up(Tenant& t) {
    double least = never;
    for (uint32_t i : with_work_) {
        Tenant& other = tenants_[i];
        if (other.number == t.number || !share_turns(t, other)) continue;
        charge(other);
        least = std::min(least, other.turn_key_us);
    }
    if (least != never) t.turn_key_us = std::clamp(t.turn_key_us, least, least + knobs.turn_us);
}

void Gpu::settle_budgets(Tenant& t) {
    if (t.knobs.rate <= 0) t.of_rate = tenant::Share();
    t.over_rate = t.knobs.rate > 0 && !t.of_rate.in_credit();
    t.below_floor = t.job->floor > 0 && t.of_floor.in_credit();
}

// ---- gates ----------------------------------------------------------------------------------------------------------

bool Gpu::share_turns(const Tenant& a, const Tenant& b) const {
    if (knobs.rule == admission::fair) return true;
    return a.job->tenant_class == b.job->tenant_class && !a.is_production();
}

// When the one that holds the turn will be so far ahead of another that it loses it.
double Gpu::turn_edge_us(const Tenant& holder) const {
    double soonest = never;
    for (uint32_t i : with_work_) {
        const Tenant& other = tenants_[i];
        if (other.number == holder.number || !share_turns(holder, other) || is_barred(other)) continue;
        double ahead = other.turn_key_us + knobs.turn_us - holder.turn_key_us;
        soonest = std::min(soonest, ahead * holder.job->weight);
    }
    return now_ + std::max(soonest, kShortestEdgeUs);
}

void Gpu::refresh_gates() {
    edge_us_ = never;
    bool gates = knobs.rule == admission::strict || knobs.rule == admission::fair;
    bool busy_above[4] = {};  // at [c]: somebody of a class before c has work and tolerates no company
    for (uint32_t i : with_work_) {
        Tenant& t = tenants_[i];
        charge(t);
        settle_budgets(t);
        for (uint32_t below = t.job->tenant_class + 1; below < 4 && !t.knobs.tolerant; ++below)
            busy_above[below] = true;
    }
    auto goes_before = [&](const Tenant& a, const Tenant& b) {
        double first = a.turn_key_us - (a.holds_turn ? knobs.turn_us : 0);
        double second = b.turn_key_us - (b.holds_turn ? knobs.turn_us : 0);
        return first != second ? first < second : a.number < b.number;
    };
    uint32_t first_of[4] = {Timers::nobody, Timers::nobody, Timers::nobody, Timers::nobody};
    for (uint32_t i : with_work_) {
        const Tenant& t = tenants_[i];
        uint32_t group = knobs.rule == admission::fair ? 0 : t.job->tenant_class;
        uint32_t& first = first_of[group];
        // Whoever may not run anyway keeps no equal waiting.
        bool wins = first == Timers::nobody || goes_before(t, tenants_[first]);
        if (!is_barred(t) && wins) first = i;
    }
    for (uint32_t i : with_work_) {
        Tenant& t = tenants_[i];
        uint32_t group = knobs.rule == admission::fair ? 0 : t.job->tenant_class;
        bool has_turn = first_of[group] == i || first_of[group] == Timers::nobody;
        bool goes = !gates || admission::may_run(knobs.rule, {t.job->tenant_class, busy_above[t.job->tenant_class],
                                                              has_turn, t.knobs.shut, t.over_rate, t.below_floor});
        t.holds_turn = goes && is_gated(t);
        if (goes != t.gate_open) set_gate(t, goes);
        if (gates && !is_gated(t)) continue;
        if (t.holds_turn) edge_us_ = std::min(edge_us_, turn_edge_us(t));
        if (t.knobs.rate > 0) edge_us_ = std::min(edge_us_, now_ + look_again_us(t.of_rate, t.knobs.rate, goes));
        if (t.job->floor > 0) {
            double most = t.below_floor ? 1 : 0;  // of its time spent working: what brings the next change soonest
            edge_us_ = std::min(edge_us_, now_ + look_again_us(t.of_floor, t.job->floor, most));
        }
    }
}

void Gpu::set_gate(Tenant& t, bool open) {
    charge(t);
    t.gate_open = open;
    if (!open) {
        t.closed_us = now_;
        stop_inside(t);
        return;
    }
    t.opened_us = now_;
    if (t.state == State::running) go_on_inside(t);
    if (t.state != State::held) return;
    t.passed = true;
    t.ready_us = now_ + machine_.interference.open_us;
    t.state = State::thinking;
    t.idle_us = never;
    set_alarm(t);
}

}  // namespace sim
