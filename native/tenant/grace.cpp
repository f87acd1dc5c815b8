#include "tenant/grace.h"

#include <algorithm>
#include <cmath>

namespace tenant {

namespace {

constexpr float kShortestUs = 40;
constexpr float kForget = 0.995f;  // what a pause still counts when the next one is seen

}  // namespace

float Grace::edge(int place) { return kShortestUs * std::exp2(static_cast<float>(place) / 4); }

int Grace::place_of(float us) {
    if (us <= kShortestUs) return 0;
    return std::min(kPlaces - 1, static_cast<int>(4 * std::log2(us / kShortestUs)));
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

}  // namespace tenant
