// A share of a GPU's time, and whether a tenant is over or under it. Pure.
//
// Credit grows by `share` of the time that passes and shrinks by the time that is used. It is kept within `kMemory`, so
// that neither a long rest nor a long use is remembered for ever. A tenant is over its share when the credit is used
// up, and under it when the credit reaches `kTurn`; each state holds until the other end is reached, so that it does
// not flutter.
#pragma once

#include <algorithm>

namespace admission {

class Share {
 public:
    static constexpr float kMemoryUs = 100000;
    static constexpr float kTurnUs = 5000;

    void pass(float share, float elapsed_us, float used_us) {
        credit_us_ = std::clamp(credit_us_ + share * elapsed_us - used_us, -kMemoryUs, kMemoryUs);
        if (credit_us_ <= 0) in_credit_ = false;
        if (credit_us_ >= kTurnUs) in_credit_ = true;
    }
    bool in_credit() const { return in_credit_; }
    float credit_us() const { return credit_us_; }

 private:
    float credit_us_ = 0;
    bool in_credit_ = false;
};

// A tenant's rate, which it may not exceed, and its floor, which it was promised; 0: none. A new value forgets what was
// before.
class Budgets {
 public:
    // `used_us`: GPU time charged; `did_us`: work that got done.
    void pass(float rate, float floor, float elapsed_us, float used_us, float did_us) {
        pass(rate_, rate, elapsed_us, used_us);
        pass(floor_, floor, elapsed_us, did_us);
        over_rate_ = rate > 0 && !rate_.in_credit();
        below_floor_ = floor > 0 && floor_.in_credit();
    }
    bool over_rate() const { return over_rate_; }
    bool below_floor() const { return below_floor_; }
    const Share& of_rate() const { return rate_; }
    const Share& of_floor() const { return floor_; }

 private:
    static void pass(Share& share, float of, float elapsed_us, float used_us) {
        if (of > 0)
            share.pass(of, elapsed_us, used_us);
        else
            share = Share();
    }

    Share rate_, floor_;
    bool over_rate_ = false, below_floor_ = false;
};

}  // namespace admission
