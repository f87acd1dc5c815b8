// Modelled rules: what each sees, and what its answers do.
#include "admission/rules.h"

#include <algorithm>

#include "sim/gpu.h"

namespace sim {

namespace {

constexpr double kMemoryBound = 0.6;  // of the GPU's bandwidth

}  // namespace

// Whether it stands before a request of which nothing has started.
bool Gpu::waits_to_begin(const Tenant& t) const {
    return t.state == State::asking && t.source.is_first_op() && t.left_us == t.op_us;
}

admission::Operation Gpu::operation_of(const Tenant& t) const {
    const Op& op = t.source.op();
    Bound bound = Bound::unknown;
    if (op.bound)
        bound = static_cast<Bound>(op.bound - 1);
    else if (op.sms > 0)
        bound = op.gbps >= kMemoryBound * machine_.memory_gbps ? Bound::memory : Bound::compute;
    return {t.kind, bound, t.source.is_first_op(), static_cast<float>(t.op_us), op.sms, op.gbps};
}

double Gpu::left_now_us(const Tenant& t) const {
    return left_of_operation_us(t) - (t.state == State::running ? std::max(0.0, now_ - t.since_us) * t.rate : 0);
}

double Gpu::request_left_us(const Tenant& t) const { return t.source.request_left_us() - t.op_us + left_now_us(t); }

admission::Asker Gpu::asker_of(const Tenant& t) const {
    bool runs = t.state == State::running;
    admission::Asker asker;
    asker.number = t.number;
    asker.tenant_class = t.job->tenant_class;
    asker.running = runs ? 1 : 0;
    asker.in_flight_us = runs ? static_cast<float>(left_now_us(t)) : 0;
    asker.used_us = static_cast<float>(t.figures.work_us);
    asker.remaining_us = static_cast<float>(request_left_us(t));
    asker.sm_share = static_cast<float>(t.knobs.sm_share);
    asker.rank = static_cast<float>(t.knobs.rank);
    asker.arrived_us = t.arrived_us;
    First next;
    for (uint32_t i : with_work_) {
        const Tenant& other = tenants_[i];
        if (other.knobs.lane != t.knobs.lane || !other.in_request) continue;
        if (!waits_to_begin(other))
            asker.lane_is_taken = asker.lane_is_taken || i != t.number;
        else if (!is_barred(other))
            next.offer(i, other.knobs.rank, other.arrived_us);
    }
    asker.lane_next = next.tenant;
    return asker;
}

admission::Gpu Gpu::seen_gpu() const {
    admission::Gpu seen;
    seen.now_us = now_;
    seen.sms = static_cast<float>(machine_.sms);
    seen.memory_gbps = static_cast<float>(machine_.memory_gbps);
    seen.cut_us = static_cast<float>(machine_.interference.cut_us);
    First lowest_rank, least_left, lowest_rank_waiting, least_left_waiting;
    for (uint32_t i : with_work_) {
        const Tenant& t = tenants_[i];
        if (!t.in_request) continue;
        admission::Side& side = t.is_production() ? seen.production : seen.below;
        ++side.with_work;
        if (t.state == State::running) {
            ++side.running;
            side.copies += t.kind == Kind::copy_to_device || t.kind == Kind::copy_to_host;
            side.left_us = std::max(side.left_us, static_cast<float>(left_now_us(t)));
            if (!is_copy(t.kind)) side.sms += static_cast<float>(most_sms(t));
            seen.squeezed += t.is_squeezed;
        }
        double left = request_left_us(t);
        lowest_rank.offer(i, t.knobs.rank, t.arrived_us);
        least_left.offer(i, left, t.arrived_us);
        if (t.state != State::asking || is_barred(t)) continue;
        lowest_rank_waiting.offer(i, t.knobs.rank, t.arrived_us);
        least_left_waiting.offer(i, left, t.arrived_us);
    }
    seen.lowest_rank_tenant = lowest_rank.tenant;
    seen.least_left_tenant = least_left.tenant;
    seen.lowest_rank_waiting = lowest_rank_waiting.tenant;
    seen.least_left_waiting = least_left_waiting.tenant;
    seen.production.bound = production_bound_;
    for (int below : {0, 1}) {
        admission::Side& side = below ? seen.below : seen.production;
        side.outstanding_us = side.running ? outstanding_us_[below] : 0;
    }
    seen.free_sms = std::max(0.0f, seen.sms - seen.production.sms - seen.below.sms);
    return seen;
}

// The most important ask first; each start changes what the next one sees.
void Gpu::let_start() {
    if (asking_.empty()) return;
    std::sort(asking_.begin(), asking_.end(), [this](uint32_t a, uint32_t b) {
        const Tenant &left = tenants_[a], &right = tenants_[b];
        if (left.job->tenant_class != right.job->tenant_class) return left.job->tenant_class < right.job->tenant_class;
        if (left.knobs.rank != right.knobs.rank) return left.knobs.rank < right.knobs.rank;
        return left.arrived_us != right.arrived_us ? left.arrived_us < right.arrived_us : a < b;
    });
    size_t kept = 0;
    admission::Gpu seen = seen_gpu();
    for (size_t i = 0; i < asking_.size(); ++i) {
        Tenant& t = tenants_[asking_[i]];
        if (is_modelled() && is_barred(t)) {
            asking_[kept++] = t.number;
            continue;
        }
        admission::Moment moment{operation_of(t), asker_of(t), seen};
        // A rule without a Moment may have taken over while an operation asked.
        bool waits =
            is_modelled() && admission::decide(knobs.rule, moment, knobs.parameters) == admission::Verdict::wait;
        if (waits) {
            asking_[kept++] = t.number;
            continue;
        }
        bool below = !t.is_production();
        const admission::Side& side = below ? moment.gpu.below : moment.gpu.production;
        if (side.running == 0) outstanding_us_[below] = 0;
        if (!is_copy(t.kind)) outstanding_us_[below] += static_cast<float>(t.left_us);
        if (!below && !is_copy(t.kind)) production_bound_ = moment.operation.bound;
        t.is_squeezed = !is_copy(t.kind) && moment.gpu.free_sms < moment.operation.sms;
        charge(t);
        start(t);
        seen = seen_gpu();
    }
    asking_.resize(kept);
}

// True where the tenant now waits for what it has stopped.
bool Gpu::clear_the_way(Tenant& t) {
    t.cleared = true;
    double delay_us = 0;
    admission::Moment moment{operation_of(t), asker_of(t), seen_gpu()};
    for (size_t i = 0; i < kernels_.size();) {
        Tenant& other = tenants_[kernels_[i]];
        admission::Preemption answer = admission::Preemption::let_run;
        if (!other.is_production()) {
            progress(other);
            admission::Running running{operation_of(other), asker_of(other),
                                       static_cast<float>(other.op_us - other.left_us),
                                       static_cast<float>(other.left_us)};
            answer = admission::preempt(knobs.rule, moment, running, knobs.parameters);
        }
        bool kills = answer == admission::Preemption::kill;
        if (!kills && answer != admission::Preemption::cut) {
            ++i;
            continue;
        }
        stop(other);
        if (kills) {
            double lost = other.op_us - other.left_us;
            other.figures.work_us -= lost;
            other.figures.wasted_us += lost;
            other.left_us = other.op_us;
        }
        ++other.figures.preemptions;
        charge(other);
        other.state = State::asking;
        asking_.push_back(other.number);
        const Interference& costs = machine_.interference;
        delay_us = std::max(delay_us, kills ? costs.kill_us : costs.cut_us);
    }
    if (delay_us <= 0) return false;
    t.passed = true;
    t.ready_us = now_ + delay_us;
    schedule(t);
    return true;
}

}  // namespace sim
