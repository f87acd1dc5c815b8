// Logarithm, exponential, sine and cosine that are the same to the last bit on every machine. The C library's are not:
// they differ between processors (with and without fused multiply-add) and between its versions. Here there are only
// additions, multiplications and divisions, which IEEE 754 rounds in one way; -ffp-contract=off keeps the compiler from
// fusing them. Each is right to within 2 units in the last place, over the arguments that simulations have.
#pragma once

#include <cmath>

namespace sim {

constexpr double kLog2High = 0x1.62e42fee00000p-1, kLog2Low = 0x1.a39ef35793c76p-33;  // their sum is ln 2

// Of a finite number above 0.
inline double log_of(double x) {
    int doublings;
    double m = std::frexp(x, &doublings);
    if (m < 0.70710678118654752) {
        m *= 2;
        --doublings;
    }
    // ln m = 2 artanh(s) = 2 (s + s^3 / 3 + s^5 / 5 ...), |s| < 0.172
    double s = (m - 1) / (m + 1), square = s * s, rest = 0;
    for (int i = 23; i >= 3; i -= 2) rest = (rest + 1.0 / i) * square;
    return doublings * kLog2High + (2 * s + (2 * s * rest + doublings * kLog2Low));
}

// Of a number between -700 and 700.
inline double exp_of(double x) {
    double doublings = std::floor(x * 1.4426950408889634 + 0.5);
    double r = (x - doublings * kLog2High) - doublings * kLog2Low, sum = 1;
    for (int i = 14; i >= 1; --i) sum = 1 + sum * r / i;
    return std::ldexp(sum, static_cast<int>(doublings));
}

struct Direction {
    double cosine, sine;
};

// After a part of a full turn, 0 to 1.
inline Direction direction_of(double turn) {
    double quarters = std::floor(4 * turn + 0.5);
    double x = 6.283185307179586 * (turn - quarters / 4), square = x * x, cosine = 1, sine = 1;
    for (int i = 16; i >= 2; i -= 2) cosine = 1 - cosine * square / (i * (i - 1));
    for (int i = 17; i >= 3; i -= 2) sine = 1 - sine * square / (i * (i - 1));
    sine *= x;
    switch (static_cast<int>(quarters) % 4) {
        case 0:
            return {cosine, sine};
        case 1:
            return {-sine, cosine};
        case 2:
            return {-cosine, -sine};
        default:
            return {sine, -cosine};
    }
}

}  // namespace sim
