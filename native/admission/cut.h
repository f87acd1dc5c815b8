// Cut or drain, pure: when a higher class becomes busy, is the running kernel of a lower class stopped in the middle,
// or does it run to its end? The tenants and the simulator call the same functions.
//
//   rest   the expected rest of the kernel that runs at a random moment, E[d^2] / 2 E[d] over the kernels of the last
//          second: a random moment hits long kernels more often than short ones
//   cut    where the rest is longer than what a cut costs more than a change of contexts with nothing running; and
//          where streams of the tenant are linked (native/tenant/linked_streams.h): one that waits for another would
//          hold the GPU for the whole of a longer slice, in every gap of the higher class
//
// Both are learned: the rest from the tenant's own kernels, the cost from how long production's bursts waited for the
// GPU while this tenant was the only one in their way (CutCost):
//
//   wait, drained = change + rest        cost of a cut = wait, cut - change
//
// Each change between the two is a call to the kernel module for every channel group, some 150 us: so the rest must be
// well over or well under the cost.
#pragma once

#include <algorithm>
#include <cmath>

namespace admission {

// On an H200 production waited 0.25 to 0.27 ms for what was drained, of which a change of contexts takes 0.14, and 0.16
// to 0.19 ms for what was cut: a cut costs 20 to 50 us more. Gates stand every 100 us, so that half of that is always
// left to drain: what has shorter kernels than that is not worth a cut.
constexpr float kCutCostUs = 80, kChangeUs = 140;

// Recursive least squares for the change of contexts and the cost of a cut: a drained wait measures the first, less the
// rest; a cut one measures both together. An H200's figures are the prior. While nothing but cut waits were seen, half
// of what is unexpected in them is taken for the cost. Where that is too much the tenant is drained, so that the change
// is measured too, and with it the cost.
class CutCost {
 public:
    // While this tenant's kernels were cut, or drained, production waited so long.
    void saw(bool cut, float rest_us, float waited_us) {
        const float of_cut = cut ? 1.0f : 0.0f;
        float measured_us = cut ? waited_us : std::max(waited_us - rest_us, 0.0f);
        float change_part = change_variance_ + of_cut * covariance_, cost_part = covariance_ + of_cut * cost_variance_;
        float variance = change_part + of_cut * cost_part + kNoise;
        // One burst may have waited for something else.
        float most_us = 2 * std::sqrt(variance);
        float error_us = std::clamp(measured_us - change_us_ - of_cut * cost_us_, -most_us, most_us);
        float change_gain = change_part / variance, cost_gain = cost_part / variance;
        change_us_ += change_gain * error_us;
        cost_us_ += cost_gain * error_us;
        change_variance_ = std::min(change_variance_ - change_gain * change_part + kDrift, kChangeVariance);
        cost_variance_ = std::min(cost_variance_ - cost_gain * cost_part + kDrift, kCostVariance);
        covariance_ -= change_gain * cost_part;
    }
    float us() const { return std::clamp(cost_us_, kLeastUs, kMostUs); }

 private:
    static constexpr float kLeastUs = 20, kMostUs = 20000;
    // In us^2, of one wait, and of what is known before any; what is known gets older with each wait.
    static constexpr float kNoise = 100 * 100, kChangeVariance = 200 * 200, kCostVariance = 200 * 200, kDrift = 5 * 5;
    float change_us_ = kChangeUs, cost_us_ = kCutCostUs;
    float change_variance_ = kChangeVariance, cost_variance_ = kCostVariance, covariance_ = 0;
};

// Kernels; where time passes, those of about the last second: older ones count less. A graph counts piece by piece,
// from gate to gate.
struct RecentKernels {
    static constexpr double kWindowUs = 1e6;

    double us = 0, squares = 0;

    void saw(double sum_us, double sum_of_squares) {
        us += sum_us;
        squares += sum_of_squares;
    }
    void pass(double elapsed_us) {
        // No exponential: the C library's differs from machine to machine, and simulations shall not.
        double kept = kWindowUs / (kWindowUs + elapsed_us);
        us *= kept;
        squares *= kept;
    }
    float rest_us() const { return us > 0 ? static_cast<float>(squares / (2 * us)) : 0; }
};

inline bool shall_cut(bool cuts_now, float rest_us, float cut_cost_us) {
    constexpr float kFirmly = 1.15f;
    return rest_us > (cuts_now ? cut_cost_us / kFirmly : cut_cost_us * kFirmly);
}

// Whether a kernel that was cut shall run to its end beside the class for which it was cut. It stays on the GPU for as
// long as that class works, and costs it a switch and a cut at each end of its slices, a fifth of its time with slices
// of 2 ms: after five times its rest as much as the rest. Production, which waits for the ends of such slices, pays
// more; the time in which production works itself does not count.
inline bool shall_end(float cut_for_us, float rest_us) {
    constexpr float kRests = 3, kLongestRestUs = 30000;
    return rest_us < kLongestRestUs && cut_for_us > kRests * rest_us;
}

// Whether a tenant's kernels are cut, from look to look. Before anything is known of them they are: a cut that was not
// needed costs 50 us, a drain of 11 ms kernels as much as the requests beside them take.
class Cutting {
 public:
    // Since the last look these have run, or are about to.
    void look(double now_us, double sum_us, double sum_of_squares, float cut_cost_us, bool is_linked = false) {
        recent_.pass(now_us - looked_us_);
        looked_us_ = now_us;
        recent_.saw(sum_us, sum_of_squares);
        if (recent_.us > 0) cuts_ = is_linked || shall_cut(cuts_, recent_.rest_us(), cut_cost_us);
    }
    bool cuts() const { return cuts_; }
    float rest_us() const { return recent_.rest_us(); }

 private:
    RecentKernels recent_;
    double looked_us_ = 0;
    bool cuts_ = true;
};

}  // namespace admission
