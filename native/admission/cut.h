// Cut or drain, pure: when a class above goes busy, is the kernel of a lower class that runs stopped in the middle, or
// does it run to its end? The tenants and the simulator call the same functions.
//
//   rest   what is left on average of the kernel that runs at a random moment, E[d^2] / 2 E[d] over the kernels of the
//          last second: long kernels are met more often than short ones
//   cut    where the rest is longer than what a cut costs more than a change of contexts with nothing running
//
// Each change of mind is a call to the kernel module for every channel group, some 150 us: it takes a rest well over or
// well under the cost.
#pragma once

namespace admission {

// On an H200 the border lies near kernels of 0.3 to 0.4 ms.
constexpr float kCutCostUs = 160;

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

}  // namespace admission
