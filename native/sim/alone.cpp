// One tenant has the GPU to itself: its operations one after the other, without an event for each.
#include <algorithm>

#include "sim/gpu.h"

namespace sim {

bool Gpu::can_run_alone() const {
    if (is_modelled()) return false;
    size_t copies = to_device_.size() + to_host_.size() + on_device_.size();
    if (machine_.together) return kernels_.size() + copies == 1;
    if (copies) return copies == 1 && kernels_.empty();
    return rated_ != Timers::nobody;
}

// Leaves the tenant with an operation that goes beyond `until`, or at the point where others come in.
void Gpu::run_alone(double until) {
    bool was_kernel = !kernels_.empty();
    Tenant& t = tenants_[was_kernel          ? (machine_.together ? kernels_[0] : rated_)
                         : to_device_.size() ? to_device_[0]
                         : to_host_.size()   ? to_host_[0]
                                             : on_device_[0]];
    if (t.knobs.sm_share < 1 || t.rate != 1 || t.rest_us > 0 || is_hot_) return;
    bool others_want = kernels_.size() > 1;
    bool gated = is_gated(t);
    const Interference& costs = machine_.interference;
    const Kind entered = t.kind;
    while (t.end_us <= until && t.state == State::running) {
        // `settle` would see each start and end; here the books are kept by hand.
        double now = now_ = t.end_us;
        if (!is_host_copy(t.kind)) t.figures.executed_us += t.left_us;
        t.figures.work_us += t.left_us;
        t.place_used_us += t.left_us;
        if (!is_copy(t.kind)) {
            double sms = t.source.op().sms;
            t.figures.sm_us += t.left_us * sms;
            gpu_.sm_us += t.left_us * sms;
            draw(t, t.since_us, now, sms);
        }
        t.left_us = 0;
        t.since_us = now;
        note_span(t, now);
        ++t.figures.operations;
        t.done_us = now;
        t.after_copy = is_host_copy(t.kind);
        t.source.step();
        if (t.source.at_request_end()) {
            runners(entered).erase(std::find(runners(entered).begin(), runners(entered).end(), t.number));
            t.rate = 0;
            if (rated_ == t.number) rated_ = Timers::nobody;
            changed_ = true;
            end_request(t);
            note_turn(t);
            return;
        }
        fit_launch(t);
        t.kind = static_cast<Kind>(t.source.op().kind);
        t.op_us = t.left_us = t.source.op_us();
        t.passed = t.cleared = false;
        t.empty_us = now;
        double ready = std::max(now, t.cpu_us + machine_.launch_us);
        bool pauses = ready > now;
        double longest_pause = grace_us(t);
        if (is_contended_ && gated) longest_pause = std::min(longest_pause, next_look_us(t, now) - now);
        bool leaves = (gated && !t.gate_of(t.kind).open) ||
                      (pauses && (others_want || ready > until || ready - now >= longest_pause)) ||
                      is_copy(t.kind) != is_copy(entered) || is_host_copy(t.kind) != is_host_copy(entered);
        if (leaves) {
            runners(entered).erase(std::find(runners(entered).begin(), runners(entered).end(), t.number));
            t.rate = 0;
            if (rated_ == t.number) rated_ = Timers::nobody;
            changed_ = true;
            t.started_us = never;
            t.ready_us = ready;
            schedule(t);
            note_turn(t);
            return;
        }
        if (pauses) {
            see_pause(t, now, ready);
            t.figures.gap_us += ready - now;
            if (active_ && !is_copy(t.kind)) {
                gpu_.busy_us += now - active_since_us_;
                active_since_us_ = ready;
            }
        }
        if (gated && must_pass_gate(t, t.cpu_us)) ready += costs.gate_us;
        add_inner_gates(t);
        t.started_us = t.since_us = ready;
        t.end_us = ready + t.left_us;
    }
    changed_ = true;
    if (t.kind != entered) {
        runners(entered).erase(std::find(runners(entered).begin(), runners(entered).end(), t.number));
        runners(t.kind).push_back(t.number);
    }
}

}  // namespace sim
