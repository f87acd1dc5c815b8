// Cut or drain, pure: when a higher class becomes busy, is the running kernel of a lower class stopped in the middle,
// or does it run to its end? The tenants and the simulator call the same functions.
//
//   rest   the expected rest of the kernel that runs at a random moment, E[d^2] / 2 E[d] over the kernels of the last
//          second: a random moment hits long kernels more often than short ones
//   cut    where the rest is longer than what a cut costs more than a change of contexts with nothing running
//
// Each change between the two is a call to the kernel module for every channel group, some 150 us: so the rest must be
// well over or well under the cost.
#pragma once

namespace admission {

// On an H200 production waited 0.25 to 0.27 ms for what was drained, of which a change of contexts takes 0.14, and 0.16
// to 0.19 ms for what was cut: a cut costs 20 to 50 us more. Gates stand every 100 us, so that half of that is always
// left to drain: what has shorter kernels than that is not worth a cut.
constexpr float kCutCostUs = 80;

// Kernels of about the last second, older ones count less. A graph counts piece by piece, from gate to gate.
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

// Whether a tenant's kernels are cut, from look to look.
class Cutting {
 public:
    // Since the last look these have run, or are about to.
    void look(double now_us, double sum_us, double sum_of_squares, float cut_cost_us) {
        recent_.pass(now_us - looked_us_);
        looked_us_ = now_us;
        recent_.saw(sum_us, sum_of_squares);
        cuts_ = shall_cut(cuts_, recent_.rest_us(), cut_cost_us);
    }
    bool cuts() const { return cuts_; }

 private:
    RecentKernels recent_;
    double looked_us_ = 0;
    bool cuts_ = false;
};

}  // namespace admission
