// The SM clock: at its power limit a GPU lowers it for all jobs alike. Each job says what the clock is while it alone
// runs; the clock goes to the mean of what runs, idle time at the highest, with one time constant. So a kernel runs
//
//   (1 - sunk) / clock of its job   times as fast as alone
//
// Measured on an H200 beside a job of 0.74 that has the GPU for 36, 57, 63, 72 and 100 % of the time: 0.92, 0.85, 0.87,
// 0.80 and 0.74 of the highest; this has 0.91, 0.85, 0.84, 0.81 and 0.74.
#include <cmath>

#include "sim/elementary.h"
#include "sim/gpu.h"

namespace sim {

namespace {

constexpr double kNear = 0.002;      // no difference
constexpr double kStepPart = 0.125;  // of the time constant, between two changes of rates

}  // namespace

void Gpu::follow_clock() {
    if (!is_hot_) return;
    sunk_ += (sinks_to_ - sunk_) * (1 - exp_of(-std::min((now_ - sunk_us_) / machine_.interference.clock_us, 700.0)));
    if (std::abs(sinks_to_ - sunk_) < kNear) sunk_ = sinks_to_;
    sunk_us_ = now_;
}

// By what has been shared out.
void Gpu::load_clock() {
    sinks_to_ = 0;
    if (!is_hot_) return;
    for (uint32_t i : order_) sinks_to_ += (1 - tenants_[i].job->clock) * tenants_[i].speed;
    sinks_to_ = std::min(sinks_to_, 0.9);
}

double Gpu::clock_edge_us() const {
    return is_hot_ && sunk_ != sinks_to_ && !order_.empty() ? now_ + kStepPart * machine_.interference.clock_us : never;
}

}  // namespace sim
