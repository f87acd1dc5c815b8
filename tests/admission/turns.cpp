// Whose turn it is (native/admission/turns.h), over random states.
#include "admission/turns.h"

#include <random>
#include <vector>

#include "../require.h"

using admission::Equal;

namespace {

std::vector<Equal> drawn(std::mt19937& random) {
    auto one_in = [&](uint32_t n) { return random() % n == 0; };
    std::vector<Equal> all(1 + random() % 8);
    for (uint32_t i = 0; i < all.size(); ++i) {
        bool is_on = one_in(3);
        all[i] = {random() % 4, i, !one_in(3), one_in(4), is_on, is_on && one_in(3)};
    }
    return all;
}

bool may_start(const std::vector<Equal>& all, const Equal& self) {
    for (const Equal& other : all)
        if (other.number != self.number && admission::waits_for(self, other)) return false;
    return true;
}

void whose_turn() {
    std::mt19937 random(1);
    for (int i = 0; i < 200000; ++i) {
        std::vector<Equal> all = drawn(random);
        int ready = 0, on = 0, starters = 0, firsts = 0;
        for (const Equal& one : all) {
            ready += one.is_ready;
            on += one.is_on && !one.is_overdue;
            starters += one.is_ready && may_start(all, one);
            bool first = one.is_ready;
            for (const Equal& other : all)
                first = first && (other.number == one.number || admission::goes_before(one, other));
            firsts += first;
        }
        REQUIRE(firsts == (ready ? 1 : 0));
        REQUIRE(starters <= 1);
        // Nobody waits while nobody is on.
        if (ready && !on) REQUIRE(starters == 1);
        // One that is on and goes first stays, whoever else is on; nobody starts beside another that is on.
        for (const Equal& one : all) {
            if (!one.is_ready || !may_start(all, one) || (one.holds_turn && one.is_on)) continue;
            for (const Equal& other : all) REQUIRE(other.number == one.number || !other.is_on || other.is_overdue);
        }
    }
}

void lengths() {
    for (uint64_t us : {0, 1, 100, 140, 200, 400, 2000, 100000})
        for (uint32_t ready : {0u, 1u, 2u, 8u, 10u, 16u, 256u}) {
            uint64_t ns = admission::turn_ns(us * 1000, ready, admission::kNotBrief);
            uint64_t before_brief_ns = admission::turn_ns(us * 1000, ready, 0);
            // One that leaves the GPU again at once waits no longer than others, and for no less than a switch's worth.
            REQUIRE(before_brief_ns > 0 && before_brief_ns <= ns);
            if (us <= 1000 && ready <= 10) REQUIRE(admission::was_worth_it(before_brief_ns, us * 1000));
            // Nobody gets less than the one that is brief had before, but for a whole turn.
            for (uint64_t brief_ns : {uint64_t{1000000}, uint64_t{3000000}, admission::kRoundNs})
                REQUIRE(admission::turn_ns(us * 1000, ready, brief_ns) == std::clamp(brief_ns, before_brief_ns, ns));
            REQUIRE(ns > 0 && ns <= admission::kLongestTurnNs && ns * ready <= admission::kRoundNs);
            // Under 3 % goes into switching, where a round leaves room for that.
            if (us <= 1000 && ready <= 10) REQUIRE(static_cast<double>(us) * 1000 <= 0.03 * static_cast<double>(ns));
        }
}

// It is away for longer than the switches to all take that are ready, itself among them.
void returns() {
    for (uint32_t ready : {2u, 3u, 16u}) {
        REQUIRE(admission::brief_ns(700000, ready * 200000, 200000, ready) == 700000);
        REQUIRE(admission::brief_ns(700000, ready * 200000 - 1, 200000, ready) == admission::kNotBrief);
    }
}

void beside() {
    admission::Returning good{700000, admission::kLeastAwayNs, 5000000, 4000000, false, false, 2};
    REQUIRE(admission::runs_beside(good));
    for (int what = 0; what < 7; ++what) {
        admission::Returning one = good;
        if (what == 0) one.executed_ns = admission::kBriefTurnNs + 1;
        if (what == 1) one.away_ns = admission::kLeastAwayNs - 1;
        if (what == 2) one.key_ns = one.least_key_ns + admission::kBriefTurnNs + 1;
        if (what == 3) one.has_above = true;
        if (what == 4) one.any_beside = true;
        if (what == 5) one.ready = admission::kMostForBeside + 1;
        if (what == 6) one.least_key_ns = UINT64_MAX;  // nobody takes turns
        REQUIRE(!admission::runs_beside(one));
    }
}

void ends() {
    admission::Turn turn{0, 10000000, 200000, false, 0};
    REQUIRE(!admission::is_over(turn));
    turn.is_empty = true;
    REQUIRE(!admission::is_over(turn));  // it has not been worth its switch yet
    turn.empty_ns = admission::kLongestGapNs;
    REQUIRE(admission::is_over(turn));
    turn = {admission::kWorthSwitches * 200000, 10000000, 200000, true, 0};
    REQUIRE(admission::is_over(turn));
    // One that has gone on to copy leaves at once; one that still runs does not.
    turn = {0, 10000000, 200000, true, 0, true};
    REQUIRE(admission::is_over(turn));
    turn.is_empty = false;
    REQUIRE(!admission::is_over(turn));
    turn = {10000000, 10000000, 200000, false, 0};
    REQUIRE(admission::is_over(turn));
}

}  // namespace

int main() {
    whose_turn();
    lengths();
    returns();
    beside();
    ends();
    return 0;
}
