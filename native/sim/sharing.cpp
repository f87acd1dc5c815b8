// The rate of each running operation: turns of contexts, SMs, bandwidth, the host link.
#include <algorithm>
#include <cmath>

#include "admission/time_slices.h"
#include "sim/gpu.h"

namespace sim {

namespace {

constexpr double kMetUs = 1e6;      // how long two production jobs contend after they were at work at once
constexpr double kBelowUs = 2.5e5;  // how long slices follow floors after somebody was below one

}  // namespace

// Lazy: many changes at one instant cost one sharing-out.
void Gpu::settle() {
    while (changed_) {
        changed_ = false;
        let_start();
        take_turns();
        share();
        find_next_event();
    }
}

// ---- contexts that take turns ---------------------------------------------------------------------------------------

double Gpu::slice_of(Tenant& t) {
    if (t.knobs.slice_us > 0) return t.knobs.slice_us;
    if (knobs.rule != admission::strict && knobs.rule != admission::fair) return machine_.slice_us;
    uint32_t us = admission::time_slice_for(slicing_of(t));
    return us ? us : machine_.slice_us;
}

admission::Slicing Gpu::slicing_of(Tenant& t) {
    uint32_t above = 0, floor = floor_of(*t.job);
    for (uint32_t i = 0; i < t.job->tenant_class; ++i) above += here_[i];
    bool by_floors = now_ - (t.is_production() ? below_us_ : t.below_us) < kBelowUs;
    bool shares = by_floors || (t.is_production() && here_[admission::kProduction] > 1);
    uint32_t weight = by_floors && !t.is_production() ? admission::weight_for_floor(floor, floors_here_, weights_here_)
                                                      : weight_of(*t.job);
    bool overlaps = is_below_on(t) || admission::shall_end(static_cast<float>(t.cut_for_us), t.cutting.rest_us());
    admission::Slicing slicing{t.job->tenant_class, shares, weight, above > 0, t.cutting.cuts(), overlaps};
    if (!shares || !t.is_production()) return slicing;
    if (is_equal_at_work(t)) t.met_us = now_;
    slicing.cuts_below = !by_floors && is_cut_below(t);
    slicing.contends = now_ - t.met_us < kMetUs;
    return slicing;
}

// The slice that runs now is cut short, as by the kernel module when it sets another.
void Gpu::note_below(Tenant& t) {
    if (now_ - below_us_ >= kBelowUs) turn_end_us_ = never;
    t.below_us = below_us_ = now_;
}

bool Gpu::is_below_on(const Tenant& t) const {
    return std::any_of(kernels_.begin(), kernels_.end(),
                       [&](uint32_t i) { return tenants_[i].job->tenant_class > t.job->tenant_class; });
}

bool Gpu::is_cut_below(const Tenant& t) const {
    return std::any_of(kernels_.begin(), kernels_.end(), [&](uint32_t i) {
        return tenants_[i].job->tenant_class > t.job->tenant_class && tenants_[i].cutting.cuts();
    });
}

// What production keeps queued keeps everybody else off the GPU.
bool Gpu::holds_gap() const {
    if (resident_ == Timers::nobody || knobs.rule != admission::strict) return false;
    if (now_ - below_us_ < kBelowUs) return false;
    const Tenant& t = tenants_[resident_];
    return t.is_production() && t.busy && !t.knobs.tolerant && t.state == State::thinking &&
           admission::is_worth_holding(t.mean_gaps, t.gaps) && is_cut_below(t) && !is_equal_at_work(t);
}

// In the order of their numbers, round and round.
uint32_t Gpu::next_wanting(uint32_t after) const {
    uint32_t next = Timers::nobody, first = Timers::nobody;
    for (uint32_t i : kernels_) {
        first = std::min(first, i);
        if (after != Timers::nobody && i > after) next = std::min(next, i);
    }
    return next != Timers::nobody ? next : first;
}

void Gpu::begin_turn(uint32_t tenant) {
    turn_start_us_ = now_;
    turn_end_us_ = never;
    if (resident_ != Timers::nobody && resident_ != tenant) {
        Tenant& leaving = tenants_[resident_];
        bool cuts = leaving.state == State::running && !is_copy(leaving.kind) && leaving.started_us != never;
        if (cuts) ++leaving.figures.preemptions;
        const Interference& costs = machine_.interference;
        switch_end_us_ = now_ + (cuts ? costs.cut_us : costs.drain_us) + costs.cold_us;
        turn_start_us_ = switch_end_us_;
        gpu_.switch_us += switch_end_us_ - now_;
        ++gpu_.switches;
    }
    resident_ = tenant;
}

void Gpu::take_turns() {
    is_held_ = false;
    if (machine_.together || kernels_.empty()) {
        turn_end_us_ = never;
        return;
    }
    bool wants = resident_ != Timers::nobody && tenants_[resident_].state == State::running &&
                 !is_copy(tenants_[resident_].kind);
    if (!wants && holds_gap()) {
        is_held_ = true;
        turn_end_us_ = never;
        return;
    }
    if (!wants) begin_turn(next_wanting(resident_));
    if (kernels_.size() == 1) {
        turn_end_us_ = never;
        return;
    }
    // While no other context wanted to run, slice followed slice: a newcomer waits for the end of the present one.
    auto set_end = [this] {
        double slice = slice_of(tenants_[resident_]);
        double slices = std::floor(std::max(0.0, now_ - turn_start_us_) / slice);
        turn_end_us_ = turn_start_us_ + slice * (slices + 1);
    };
    if (turn_end_us_ == never) set_end();
    if (now_ >= turn_end_us_) {
        begin_turn(next_wanting(resident_));
        set_end();
    }
}

// ---- rates ----------------------------------------------------------------------------------------------------------

double Gpu::most_sms(const Tenant& t) const {
    double sms = t.source.op().sms;
    return t.knobs.sm_share < 1 ? std::min(sms, std::max(1.0, t.knobs.sm_share * machine_.sms)) : sms;
}

void Gpu::share() {
    follow_clock();
    if (!machine_.together) {
        bool nobody = switch_end_us_ > now_ || kernels_.empty() || is_held_;
        uint32_t lane = nobody ? Timers::nobody : resident_;
        if (rated_ != lane && rated_ != Timers::nobody) set_rate(tenants_[rated_], 0);
        rated_ = lane;
        order_.assign(lane == Timers::nobody ? 0 : 1, lane);
        if (lane != Timers::nobody) tenants_[lane].speed = most_sms(tenants_[lane]) / tenants_[lane].source.op().sms;
    } else {
        order_ = kernels_;
        if (machine_.interference.keep_us > 0)
            share_in_order();
        else
            share_in_proportion();
    }
    double drawn_gbps = machine_.memory_gbps * static_cast<double>(on_device_.size());
    for (uint32_t i : order_) drawn_gbps += tenants_[i].source.op().gbps * tenants_[i].speed;
    double bandwidth = drawn_gbps > machine_.memory_gbps ? machine_.memory_gbps / drawn_gbps : 1;
    bool any = false;
    for (uint32_t i : order_) {
        Tenant& t = tenants_[i];
        double pace = pace_of(t);
        set_rate(t, pace * (t.source.op().gbps > 0 ? t.speed * bandwidth : t.speed), pace);
        any = any || t.rate > 0;
    }
    load_clock();
    if (any != active_) {
        if (active_) gpu_.busy_us += now_ - active_since_us_;
        active_ = any;
        active_since_us_ = now_;
    }
    for (uint32_t i : on_device_) set_rate(tenants_[i], bandwidth);
    share_link(to_device_);
    share_link(to_host_);
}

// Copies are in pieces, each with a gate: they stop soon after their gate was closed.
void Gpu::share_link(const std::vector<uint32_t>& copies) {
    auto goes = [this](uint32_t i) { return tenants_[i].link_gate.open; };
    auto going = static_cast<double>(std::count_if(copies.begin(), copies.end(), goes));
    for (uint32_t i : copies) set_rate(tenants_[i], goes(i) ? 1 / going : 0);
}

// It has begun to copy, or has ended: lower classes look at their gates.
void Gpu::change_link(const Tenant& t) {
    uint32_t below = 0;
    for (uint32_t i = t.job->tenant_class + 1; i < 4; ++i) below += here_[i];
    if (below && !is_modelled()) refresh_gates();
}

// The more urgent level first, equals in proportion to what they ask for: as model::DeviceModel does.
void Gpu::share_in_proportion() {
    auto level = [this](uint32_t i) { return machine_.priorities ? tenants_[i].job->priority : 0; };
    std::sort(order_.begin(), order_.end(),
              [&](uint32_t a, uint32_t b) { return level(a) != level(b) ? level(a) < level(b) : a < b; });
    double free_sms = machine_.sms;
    for (size_t first = 0, last; first < order_.size(); first = last) {
        double asked = 0;
        for (last = first; last < order_.size() && level(order_[last]) == level(order_[first]); ++last)
            asked += most_sms(tenants_[order_[last]]);
        double part = asked <= free_sms ? 1 : free_sms / asked;
        for (size_t i = first; i < last; ++i) {
            Tenant& t = tenants_[order_[i]];
            t.speed = part * most_sms(t) / t.source.op().sms;
        }
        free_sms = std::max(0.0, free_sms - asked);
    }
}

double Gpu::locked_for_us(const Tenant& t) const {
    return std::clamp(machine_.interference.blocks * t.source.op().block_us, 1.0, std::max(1.0, t.op_us));
}

// The hardware hands SMs out block by block, in the order in which kernels came: one that is on keeps what it has, and
// the next has what is left. Priorities count when a block ends: until then what it holds is locked.
void Gpu::share_in_order() {
    const Interference& costs = machine_.interference;
    uint32_t most_urgent = UINT32_MAX;
    for (uint32_t i : order_) most_urgent = std::min(most_urgent, tenants_[i].job->priority);
    auto level = [&](const Tenant& t) { return t.yields ? UINT32_MAX : machine_.priorities ? t.job->priority : 0; };
    std::sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) {
        const Tenant &left = tenants_[a], &right = tenants_[b];
        return level(left) != level(right) ? level(left) < level(right) : left.place < right.place;
    });
    double free_sms = machine_.sms;
    for (uint32_t i : order_) {
        Tenant& t = tenants_[i];
        bool is_contended = machine_.priorities && t.job->priority != most_urgent;
        if (is_contended && !t.is_contended && t.granted_sms > 0) {
            double block = locked_for_us(t);
            t.lock_us = t.gained_us + block * std::ceil((now_ - t.gained_us) / block);
        }
        t.is_contended = is_contended;
        t.locked_sms = machine_.priorities && now_ < t.lock_us ? std::min(t.granted_sms, most_sms(t)) : 0;
        free_sms -= t.locked_sms;
    }
    for (uint32_t i : order_) {
        Tenant& t = tenants_[i];
        double more = std::clamp(most_sms(t) - t.locked_sms, 0.0, std::max(0.0, free_sms));
        free_sms -= more;
        double got = t.locked_sms + more;
        if (got > t.granted_sms + 0.5) {
            t.gained_us = now_;
            if (t.is_contended) t.lock_us = now_ + locked_for_us(t);
        }
        t.granted_sms = got;
        t.speed = got / t.source.op().sms;
        t.yields = false;
    }
    double taken = machine_.sms - free_sms;
    for (uint32_t i : order_) {
        Tenant& t = tenants_[i];
        double of_others = (taken - t.granted_sms) / machine_.sms;
        t.speed *= (1 - costs.together_tax) * (1 - costs.contention * of_others);
    }
}

double Gpu::keep_us(const Tenant& t) const {
    double longest = 0;
    for (uint32_t i : kernels_)
        if (i != t.number) longest = std::max({longest, tenants_[i].op_us, tenants_[i].last_us});
    return machine_.interference.keep_us + machine_.interference.tail * longest;
}

// A stream of short kernels, or a graph of them, gives its SMs up to a waiting stream after `keep_us`.
void Gpu::lose_places() {
    if (!machine_.together || kernels_.size() < 2) return;
    for (uint32_t i : kernels_) {
        Tenant& t = tenants_[i];
        if (t.kind != Kind::graph || t.rate <= 0) continue;
        double used = t.place_used_us + (now_ - t.since_us) * t.rate;
        if (used + 1e-6 < keep_us(t)) continue;
        progress(t);
        t.place = ++places_given_;
        t.place_used_us = 0;
        t.yields = true;
    }
}

void Gpu::set_rate(Tenant& t, double rate, double pace) {
    if (rate == t.rate) return;  // its end stays exactly what it was
    progress(t);
    t.rate = rate;
    t.pace = pace;
    t.end_us = rate > 0 ? t.since_us + t.left_us / rate : never;
    if (rate > 0 && t.started_us == never) t.started_us = now_;
}

void Gpu::progress(Tenant& t) {
    if (now_ <= t.since_us) return;  // it starts in a moment: run_alone has gone ahead that far
    double done = std::min(t.left_us, (now_ - t.since_us) * t.rate);
    if (done > 0) {
        t.left_us -= done;
        t.figures.work_us += done;
        t.place_used_us += done;
        double executed = done / t.pace;
        if (!is_host_copy(t.kind)) t.figures.executed_us += executed;
        if (!is_copy(t.kind)) {
            double sms = t.source.op().sms;
            t.figures.sm_us += executed * sms;
            gpu_.sm_us += executed * sms;
            draw(t, t.since_us, now_, sms * t.rate / t.pace);
        }
    }
    t.since_us = now_;
}

void Gpu::draw(Tenant& t, double from_us, double to_us, double sms) {
    double begin = std::max(0.0, from_us - timeline_from_us_);
    double end = std::min(to_us - timeline_from_us_, timeline_place_us_ * timeline_places_);
    if (!timeline_places_ || begin >= end) return;
    auto place_of = [&](double us) {
        return std::min(static_cast<size_t>(us / timeline_place_us_), size_t{timeline_places_} - 1);
    };
    for (size_t place = place_of(begin), last = place_of(end); place <= last; ++place) {
        double edge = static_cast<double>(place) * timeline_place_us_;
        double within = std::min(end, edge + timeline_place_us_) - std::max(begin, edge);
        if (within > 0) t.timeline[place] += static_cast<float>(within * sms / timeline_place_us_);
    }
}

void Gpu::find_next_event() {
    next_us_ = never;
    auto soonest = [this](const std::vector<uint32_t>& running) {
        for (uint32_t i : running) next_us_ = std::min(next_us_, tenants_[i].end_us);
    };
    soonest(order_);
    soonest(to_device_);
    soonest(to_host_);
    soonest(on_device_);
    next_us_ = std::min({next_us_, turn_end_us_, clock_edge_us()});
    if (switch_end_us_ > now_) next_us_ = std::min(next_us_, switch_end_us_);
    if (!machine_.together || order_.size() < 2 || machine_.interference.keep_us <= 0) return;
    bool somebody_waits = false;
    for (uint32_t i : order_) somebody_waits = somebody_waits || tenants_[i].speed < 0.999;
    if (!somebody_waits) return;
    for (uint32_t i : order_) {
        const Tenant& t = tenants_[i];
        if (t.rate <= 0) continue;
        if (t.lock_us > now_) next_us_ = std::min(next_us_, t.lock_us);
        if (t.kind == Kind::graph) {
            double left = keep_us(t) - t.place_used_us - (now_ - t.since_us) * t.rate;
            next_us_ = std::min(next_us_, now_ + std::max(left, 0.001) / t.rate);
        }
    }
}

}  // namespace sim
