#include "admission/grace.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace admission {

namespace {

constexpr float kShortestUs = 40, kLongestUs = 1e6f;
constexpr float kQuarters[] = {1, 1.18920712f, 1.41421356f, 1.68179283f};  // of a doubling
constexpr float kForget = 0.995f;  // what a pause still counts when the next one is seen
constexpr int kPlaces = Grace::kPlaces;

// Where each place begins. Without a logarithm: the C library's differs in its last bit from machine to machine, and
// simulations shall not.
constexpr auto edges() {
    std::array<float, kPlaces> found{};
    for (int place = 0; place < kPlaces; ++place)
        found[place] = place < 4 ? kShortestUs * kQuarters[place] : 2 * found[place - 4];
    return found;
}
constexpr std::array<float, kPlaces> kEdges = edges();

}  // namespace

int Grace::place_of(float us) {
    if (us <= kShortestUs) return 0;
    int doublings;
    float rest = 2 * std::frexp(us / kShortestUs, &doublings);
    int quarters = static_cast<int>(std::upper_bound(kQuarters, kQuarters + 4, rest) - kQuarters) - 1;
    return std::min(kPlaces - 1, 4 * (doublings - 1) + quarters);
}

// Of a grace that so many pauses, of this length in all, are longer than.
float Grace::worth(float grace_us, float longer, float longer_us) const {
    float share = std::max(longer_us - longer * (grace_us + kLostUs), 0.0f) / all_us_;
    return share / (share + kEnough) - longer * kReturnUs / all_us_;
}

void Grace::saw_pause(double since_us, double until_us) {
    // Of a night at rest no more than this is to be learned.
    float us = std::min(static_cast<float>(until_us - since_us), kLongestUs);
    float worked_us = seen_ ? std::clamp(static_cast<float>(since_us - resumed_us_), 0.0f, kLongestUs) : 0;
    resumed_us_ = until_us;
    int place = place_of(us);
    for (int i = 0; i < kPlaces; ++i) {
        counts_[i] = counts_[i] * kForget + (i == place ? 1 : 0);
        sums_[i] = sums_[i] * kForget + (i == place ? us : 0);
    }
    all_us_ = all_us_ * kForget + us + worked_us;
    if (++seen_ < kFewest) return;

    // From the longest on, so that nothing is left over by rounding.
    float longer[kPlaces], longer_us[kPlaces], worths[kPlaces];
    longer[kPlaces - 1] = counts_[kPlaces - 1];
    longer_us[kPlaces - 1] = sums_[kPlaces - 1];
    for (int i = kPlaces - 2; i >= 0; --i) {
        longer[i] = longer[i + 1] + counts_[i];
        longer_us[i] = longer_us[i + 1] + sums_[i];
    }
    for (int i = 0; i < kPlaces; ++i) worths[i] = worth(kEdges[i], longer[i], longer_us[i]);
    // Of equals the shortest is best.
    best_us_ = kEdges[std::max_element(worths, worths + kPlaces) - worths];
}

float Grace::us(float otherwise) const { return seen_ < kFewest ? otherwise : best_us_; }

}  // namespace admission
