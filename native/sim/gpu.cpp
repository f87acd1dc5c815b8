// Events: jobs come and go, requests begin and end, operations reach the head of their streams and finish.
#include "sim/gpu.h"

#include <algorithm>
#include <cmath>

namespace sim {

namespace {

void erase(std::vector<uint32_t>& list, uint32_t tenant) { list.erase(std::find(list.begin(), list.end(), tenant)); }

}  // namespace

Gpu::Gpu(const Machine& machine, uint32_t timeline_places, double timeline_from_us, double timeline_us,
         size_t most_spans)
    : machine_(machine),
      timeline_places_(timeline_places),
      timeline_from_us_(timeline_from_us),
      timeline_place_us_(timeline_places ? timeline_us / timeline_places : 0),
      most_spans_(most_spans) {
    spans_.reserve(most_spans);
}

uint32_t Gpu::add_program(Program program) {
    auto fitted = std::make_unique<Program>(std::move(program));
    for (Op& op : fitted->ops) {
        float sms = static_cast<float>(machine_.sms), gbps = static_cast<float>(machine_.memory_gbps);
        if (op.sms > sms) {
            op.us *= op.sms / sms;
            op.gbps *= sms / op.sms;
            op.sms = sms;
        }
        if (op.gbps > gbps) {
            op.us *= op.gbps / gbps;
            op.gbps = gbps;
        }
        op.us = std::max(op.us, 0.001f);
    }
    fitted->left_us.resize(fitted->ops.size());
    for (size_t request = fitted->request_ends.size(); request-- > 0;) {
        uint32_t begin = request ? fitted->request_ends[request - 1] : 0;
        double left = 0;
        for (uint32_t i = fitted->request_ends[request]; i-- > begin;) {
            left += fitted->ops[i].us;
            fitted->left_us[i] = static_cast<float>(left);
        }
    }
    programs_.push_back(std::move(fitted));
    return static_cast<uint32_t>(programs_.size() - 1);
}

uint32_t Gpu::add_tenant(const Job& job, std::vector<double> arrivals) {
    uint32_t number = static_cast<uint32_t>(tenants_.size());
    jobs_.push_back(std::make_unique<Job>(job));
    lists_.push_back(std::make_unique<std::vector<double>>(std::move(arrivals)));
    const Job* its_job = jobs_.back().get();
    Source source(*programs_[job.program], *its_job, lists_.back()->data(), lists_.back()->size());
    tenants_.emplace_back(source, its_job);
    is_hot_ = is_hot_ || its_job->clock < 1;
    Tenant& t = tenants_.back();
    t.number = number;
    t.timeline.resize(timeline_places_);
    timers_.add_tenant();
    timers_.set(number, job.begins_us);
    return number;
}

// ---- jobs -----------------------------------------------------------------------------------------------------------

void Gpu::arrive(Tenant& t) {
    timers_.set(t.number, never);
    waiting_for_memory_.push_back(t.number);
    admit_waiting();
}

// In the order in which the jobs came: no small job overtakes a large one for ever.
bool Gpu::admit_waiting() {
    bool any = false;
    while (!waiting_for_memory_.empty()) {
        Tenant& t = tenants_[waiting_for_memory_.front()];
        uint64_t need = t.job->persistent_bytes + t.job->ephemeral_bytes;
        if (machine_.holds_memory && memory_used_ + need > machine_.memory_bytes) return any;
        memory_used_ += need;
        waiting_for_memory_.erase(waiting_for_memory_.begin());
        t.figures.begun_us = t.done_us = t.empty_us = t.cpu_us = t.charged_us = now_;
        t.state = State::thinking;
        ++here_[t.job->tenant_class];
        floors_here_ += floor_of(*t.job);
        if (t.is_production()) weights_here_ += weight_of(*t.job);
        any = true;
        begin_request(t);
    }
    return any;
}

void Gpu::leave(Tenant& t) {
    t.state = State::gone;
    --here_[t.job->tenant_class];
    floors_here_ -= floor_of(*t.job);
    if (t.is_production()) weights_here_ -= weight_of(*t.job);
    t.in_request = false;
    t.ready_us = never;
    t.figures.ended_us = now_;
    if (t.busy) go_idle(t);
    timers_.set(t.number, never);
    memory_used_ -= t.job->persistent_bytes + t.job->ephemeral_bytes;
    admit_waiting();
}

// ---- requests and launches ------------------------------------------------------------------------------------------

double Gpu::in_flight_limit_us(const Tenant& t) const {
    return is_gated(t) && has_company(t) ? knobs.in_flight_us : t.job->run_ahead_us;
}

void Gpu::begin_request(Tenant& t) {
    double arrival = t.source.next_arrival(now_);
    if (arrival == never) return leave(t);
    bool runs_ahead = t.job->arrivals == Arrivals::closed && !t.job->waits_for_request;
    double begin = runs_ahead ? t.cpu_us : std::max(arrival, t.job->waits_for_request ? t.done_us : t.cpu_us);
    t.arrived_us = t.job->arrivals == Arrivals::closed ? now_ : arrival;
    t.source.begin_request();
    if (t.job->waits_for_request && !t.job->is_recorded) t.figures.asleep_us += begin - now_;
    t.cpu_us = std::max(begin + t.source.think_us(), t.done_us - in_flight_limit_us(t));
    t.service_us = std::max(t.cpu_us, t.done_us);
    t.cpu_us += t.source.op().gap_us;
    see_own_cpu(t);
    if (t.job->is_recorded) t.arrived_us = t.service_us = std::max(t.cpu_us, t.done_us);
    take_operation(t);
}

void Gpu::end_request(Tenant& t) {
    if (t.job->waits_for_request) see_blocked(t);
    t.figures.latency.add(now_ - t.arrived_us);
    t.figures.service.add(now_ - t.service_us);
    ++t.figures.requests;
    t.in_request = false;
    begin_request(t);
}

void Gpu::next_operation(Tenant& t) {
    t.source.step();
    if (t.source.at_request_end()) return end_request(t);
    fit_launch(t);
    take_operation(t);
}

// For the present operation. What a recorded job's CPU did, work or sleep, nobody knows.
void Gpu::see_own_cpu(Tenant& t) {
    if (!t.job->is_recorded) t.figures.own_cpu_us += t.source.op().gap_us;
}

// From the launch of the present operation to its end.
void Gpu::see_blocked(Tenant& t) {
    t.figures.blocked_us += std::max(t.done_us - t.cpu_us, 0.0);
    ++t.figures.blocking_calls;
}

// The CPU launches one operation `gap_us` after the other, but is never further ahead of the GPU than it may be.
void Gpu::fit_launch(Tenant& t) {
    const Op& op = t.source.op();
    if (op.sync) see_blocked(t);
    t.cpu_us = op.sync ? t.done_us + op.gap_us : std::max(t.cpu_us + op.gap_us, t.done_us - in_flight_limit_us(t));
    see_own_cpu(t);
}

void Gpu::take_operation(Tenant& t) {
    t.kind = static_cast<Kind>(t.source.op().kind);
    t.op_us = t.left_us = t.source.op_us();
    t.passed = t.cleared = false;
    t.started_us = never;
    t.empty_us = t.done_us;
    t.ready_us = std::max(t.done_us, t.cpu_us + machine_.launch_us);
    schedule(t);
}

void Gpu::schedule(Tenant& t) {
    if (t.ready_us <= now_) return reach(t);
    t.state = State::thinking;
    // Behind its own gate a stream is not empty.
    t.idle_us = t.busy && !t.passed ? t.empty_us + grace_us(t) : never;
    if (!t.passed) t.has_place = false;
    set_alarm(t);
}

void Gpu::set_alarm(Tenant& t) { timers_.set(t.number, std::min(t.ready_us, t.idle_us)); }

void Gpu::alarm(Tenant& t) {
    if (t.state == State::away) return arrive(t);
    if (t.ready_us <= now_) return reach(t);
    t.idle_us = never;
    set_alarm(t);
    go_idle(t);
}

void Gpu::reach(Tenant& t) {
    if (!t.passed && now_ > t.empty_us) {
        see_pause(t, t.empty_us, now_);
        bool waited = t.in_request ? t.source.op().sync : t.job->waits_for_request;
        if (t.busy && waited) ++t.gaps;
        if (t.busy) t.figures.gap_us += now_ - t.empty_us;
    }
    t.ready_us = t.idle_us = never;
    timers_.set(t.number, never);
    t.in_request = true;
    // A tenant that was idle has recomputed its gate before it launches.
    double launched_us = t.busy ? t.cpu_us : now_;
    if (!t.busy) go_busy(t);
    if (!t.passed && is_gated(t) && must_pass_gate(t, launched_us)) {
        if (!t.gate_of(t.kind).open) {
            t.state = State::held;
            t.has_place = false;
            note_turn(t);
            return;
        }
        // The stream stands at the gate for a moment: time that is not work.
        t.left_us += machine_.interference.gate_us;
        t.figures.work_us -= machine_.interference.gate_us;
    }
    if (!is_modelled()) {
        start(t);
        note_turn(t);
        return;
    }
    if (t.is_production() && !t.cleared && clear_the_way(t)) return;
    charge(t);
    t.state = State::asking;
    asking_.push_back(t.number);
    changed_ = true;
}

// ---- operations -----------------------------------------------------------------------------------------------------

std::vector<uint32_t>& Gpu::runners(Kind kind) {
    switch (kind) {
        case Kind::copy_to_device:
            return to_device_;
        case Kind::copy_to_host:
            return to_host_;
        case Kind::copy_on_device:
            return on_device_;
        default:
            return kernels_;
    }
}

void Gpu::start(Tenant& t) {
    if (t.started_us == never) add_inner_gates(t);
    t.state = State::running;
    t.rate = 0;
    t.pace = 1;
    t.since_us = now_;
    t.end_us = never;
    t.lock_us = -1;
    t.granted_sms = 0;
    t.is_contended = false;
    if (!t.has_place || t.place_used_us >= keep_us(t)) {
        t.yields = t.has_place;
        t.place = ++places_given_;
        t.place_used_us = 0;
        t.has_place = true;
    }
    runners(t.kind).push_back(t.number);
    changed_ = true;
    if (is_host_copy(t.kind)) {
        charge(t);
        t.is_brief = !admission::was_worth_it(static_cast<uint64_t>(t.turn_us * 1000),
                                              static_cast<uint64_t>(switch_us() * 1000));
        change_link(t);
    }
}

void Gpu::stop(Tenant& t) {
    progress(t);
    t.rate = 0;
    if (rated_ == t.number) rated_ = Timers::nobody;
    erase(runners(t.kind), t.number);
    changed_ = true;
    if (is_host_copy(t.kind)) change_link(t);
}

void Gpu::finish(Tenant& t) {
    stop(t);
    if (t.rest_us > 0) {
        t.left_us = t.rest_us;
        t.rest_us = 0;
        t.state = State::held;
        t.has_place = false;
        note_turn(t);
        return;
    }
    if (!is_copy(t.kind)) t.last_us = t.op_us;
    note_span(t, now_);
    ++t.figures.operations;
    t.done_us = now_;
    t.after_copy = is_host_copy(t.kind);
    next_operation(t);
    note_turn(t);
}

void Gpu::finish_due() {
    due_.clear();
    auto collect = [this](const std::vector<uint32_t>& running) {
        for (uint32_t i : running)
            if (tenants_[i].end_us <= now_) due_.push_back(i);
    };
    collect(kernels_);
    collect(to_device_);
    collect(to_host_);
    collect(on_device_);
    std::sort(due_.begin(), due_.end());
    // Finishing one may start others and stop some of these, but ends none.
    for (uint32_t i : due_)
        if (tenants_[i].state == State::running) finish(tenants_[i]);
}

void Gpu::note_span(const Tenant& t, double end_us) {
    if (!most_spans_) return;
    if (spans_.size() == most_spans_) {
        ++spans_left_out_;
        return;
    }
    spans_.push_back({t.started_us, end_us, t.number, static_cast<uint32_t>(t.kind), t.source.begun()});
}

// ---- time -----------------------------------------------------------------------------------------------------------

void Gpu::run(double until, double tick_every_us, const std::function<bool()>& tick) {
    until_ = until;
    tick_us_ = tick_every_us > 0 ? now_ : never;
    for (;;) {
        settle();
        if (can_run_alone()) run_alone(std::min({timers_.soonest_us(), edge_us_, tick_us_, turn_end_us_, until_}));
        settle();
        double next = std::min({timers_.soonest_us(), next_us_, edge_us_, tick_us_});
        // Without alarms and work only ticks are left: no job will ever come again.
        bool over = std::min({timers_.soonest_us(), next_us_}) == never && with_work_.empty() && asking_.empty();
        if (next > until_ || over) break;
        now_ = std::max(now_, next);
        ++gpu_.events;
        finish_due();
        while (timers_.soonest_us() <= now_) alarm(tenants_[timers_.soonest()]);
        lose_places();
        if (edge_us_ <= now_) refresh_gates();
        if (tick_us_ <= now_) {
            for (Tenant& t : tenants_) {
                charge(t);
                if (t.state == State::running) progress(t);
            }
            if (!tick()) {
                until_ = now_;
                break;
            }
            tick_us_ += tick_every_us;
            refresh_gates();
        }
        changed_ = true;
    }
    if (now_ < until_ && std::min(timers_.soonest_us(), next_us_) != never) now_ = until_;
    close_books();
}

// Unanswered requests have waited, too.
void Gpu::close_books() {
    if (active_) gpu_.busy_us += now_ - active_since_us_;
    active_since_us_ = now_;
    for (Tenant& t : tenants_) {
        if (t.state == State::running) progress(t);
        charge(t);
        if (t.state == State::gone || t.state == State::away || t.job->arrivals == Arrivals::closed) continue;
        for (double arrival = t.arrived_us; arrival <= now_; arrival = t.source.next_arrival(now_)) {
            t.figures.latency.add(now_ - arrival);
            ++t.figures.unanswered;
        }
    }
}

Gpu::Standing Gpu::standing(uint32_t tenant) const {
    const Tenant& t = tenants_[tenant];
    bool is_here = t.state != State::away && t.state != State::gone;
    double per_request = is_here ? t.source.request_us() : 0;
    double left = 0;
    if (t.in_request) left = t.source.request_left_us() - (t.op_us - left_of_operation_us(t));
    double remaining = 0;
    if (t.job->requests && is_here)
        remaining = std::max(0.0, left + per_request * static_cast<double>(t.job->requests - t.source.begun()));
    return {is_here,
            t.busy,
            is_gated(t) && !t.gate_of(t.kind).open,
            t.in_request,
            t.state == State::running ? t.left_us : 0,
            remaining,
            per_request};
}

}  // namespace sim
