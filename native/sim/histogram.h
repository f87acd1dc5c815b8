// Times in bins that grow by 2 %, so that a quantile is known to within 1 %, in a size that does not depend on the
// number of samples.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "sim/elementary.h"

namespace sim {

class Histogram {
 public:
    static constexpr int kPlaces = 1600;
    static constexpr double kLeastUs = 0.1, kGrowth = 1.02, kLogGrowth = 0.01980262729617973;

    void add(double us, uint64_t times = 1) {
        double place = us <= kLeastUs ? 0 : log_of(us / kLeastUs) / kLogGrowth;
        counts_[static_cast<size_t>(std::min<double>(place, kPlaces - 1))] += times;
        count_ += times;
        sum_ += us * static_cast<double>(times);
        least_ = std::min(least_, us);
        most_ = std::max(most_, us);
    }

    uint64_t count() const { return count_; }
    double sum() const { return sum_; }
    double least() const { return count_ ? least_ : 0; }
    double most() const { return most_; }
    const std::array<uint64_t, kPlaces>& counts() const { return counts_; }

 private:
    std::array<uint64_t, kPlaces> counts_{};
    uint64_t count_ = 0;
    double sum_ = 0, least_ = 1e300, most_ = 0;
};

}  // namespace sim
