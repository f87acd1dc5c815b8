#include "admission/grace.h"

#include <algorithm>
#include <cmath>

namespace admission {

namespace {

constexpr float kShortestUs = 40;
constexpr float kQuarters[] = {1, 1.18920712f, 1.41421356f, 1.68179283f};  // of a doubling
constexpr float kForget = 0.995f;  // what a pause still counts when the next one is seen

}  // namespace

// Without a logarithm: the C library's differs in its last bit from machine to machine, and simulations shall not.
float Grace::edge(int place) { return std::ldexp(kShortestUs * kQuarters[place % 4], place / 4); }

int Grace::place_of(float us) {
    if (us <= kShortestUs) return 0;
    int doublings;
    float rest = 2 * std::frexp(us / kShortestUs, &doublings);
    int quarters = static_cast<int>(std::upper_bound(kQuarters, kQuarters + 4, rest) - kQuarters) - 1;
    return std::min(kPlaces - 1, 4 * (doublings - 1) + quarters);
}

void Grace::saw_pause(float us) {
    for (int i = 0; i < kPlaces; ++i) {
        counts_[i] *= kForget;
        sums_[i] *= kForget;
    }
    int place = place_of(us);
    counts_[place] += 1;
    sums_[place] += us;
    if (++seen_ < kFewest) return;

    float longer = 0;
    for (float count : counts_) longer += count;
    float shorter_us = 0, least = 0;
    for (int i = 0; i < kPlaces; ++i) {
        float cost = shorter_us + longer * (edge(i) + kReturnUs);
        if (i == 0 || cost < least) {
            least = cost;
            best_us_ = edge(i);
        }
        shorter_us += sums_[i];
        longer -= counts_[i];
    }
}

float Grace::us(float otherwise) const { return seen_ < kFewest ? otherwise : best_us_; }

}  // namespace admission
