// A share of a GPU's time, and whether a tenant is over or under it. Pure.
//
// Credit grows by `share` of the time that passes and shrinks by the time that is used. It is kept within bounds, so
// that neither a long rest nor a long use is remembered for ever. A tenant is over its share when the credit is used
// up, and under it when the credit reaches a turn; each state holds until the other end is reached, so that it does
// not flutter.
//
// The turns of a rate are long: a burst of a higher class pays for a change of contexts when the tenant has run since
// the last burst, however shortly (0.13 ms on an H200), so the same time in fewer turns slows fewer bursts down. No
// more than one turn is saved: what a tenant spends at once is a promise broken for a moment. A new rate begins with
// its part of one, so that a little less than no limit is a little less.
#pragma once

#include <algorithm>

namespace admission {

class Share {
 public:
    static constexpr float kMostDebtUs = 100000;

    Share(float turn_us, float most_us) : turn_us_(turn_us), most_us_(most_us) {}
    // What is used now adds to a debt up to `most_debt_us`.
    void pass(float share, float elapsed_us, float used_us, float most_debt_us = kMostDebtUs) {
        float least_us = std::min(credit_us_, -most_debt_us);
        credit_us_ = std::clamp(credit_us_ + share * elapsed_us - used_us, least_us, most_us_);
        if (credit_us_ <= 0) in_credit_ = false;
        if (credit_us_ >= turn_us_) in_credit_ = true;
    }
    // Without work no more than a turn is saved.
    void rest(float share, float elapsed_us) {
        credit_us_ = std::min(credit_us_ + share * elapsed_us, std::max(credit_us_, turn_us_));
    }
    void forget() { *this = Share(turn_us_, most_us_); }
    // In a turn, with its part of one.
    void begin(float share) { credit_us_ = share * turn_us_, in_credit_ = true; }
    float turn_us() const { return turn_us_; }
    bool in_credit() const { return in_credit_; }
    float credit_us() const { return credit_us_; }

 private:
    float turn_us_, most_us_;
    float credit_us_ = 0;
    bool in_credit_ = false;
};

// A tenant's rate, which it may not exceed, and its floor, which it was promised; 0: none. A new value forgets what was
// before. What a tenant gets in the pauses of the higher classes counts towards the next kSpareUs of its floor: they
// may come back for long, and a debt of 100 ms would leave a floor of 5 % unkept for 2 s.
class Budgets {
 public:
    static constexpr float kRateTurnUs = 20000;
    static constexpr float kFloorTurnUs = 5000, kMostOfFloorUs = 100000, kSpareUs = 500000;

    // What has passed since the last time.
    struct Passed {
        float elapsed_us;           // with work
        float used_us;              // of that, GPU time charged (charging.h)
        bool above_is_busy = true;  // a higher class wants the GPU
        float rested_us = 0;        // before that, without work
    };
    void pass(float rate, float floor, const Passed& passed) {
        if (rate > 0 && !has_rate_) rate_.begin(rate);
        has_rate_ = rate > 0;
        bool is_spare = !passed.above_is_busy && !floor_.in_credit();
        pass(rate_, rate, passed, Share::kMostDebtUs);
        pass(floor_, floor, passed, is_spare ? std::min(floor * kSpareUs, Share::kMostDebtUs) : Share::kMostDebtUs);
        over_rate_ = rate > 0 && !rate_.in_credit();
        below_floor_ = floor > 0 && floor_.in_credit();
    }
    bool over_rate() const { return over_rate_; }
    bool below_floor() const { return below_floor_; }
    const Share& of_rate() const { return rate_; }
    const Share& of_floor() const { return floor_; }

 private:
    static void pass(Share& share, float of, const Passed& passed, float most_debt_us) {
        if (of <= 0) return share.forget();
        share.rest(of, passed.rested_us);
        share.pass(of, passed.elapsed_us, passed.used_us, most_debt_us);
    }

    Share rate_{kRateTurnUs, kRateTurnUs}, floor_{kFloorTurnUs, kMostOfFloorUs};
    bool has_rate_ = false, over_rate_ = false, below_floor_ = false;
};

}  // namespace admission
