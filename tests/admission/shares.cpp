// Pure parts of how a tenant shares: `shares rate`, `floors`, `slices`, `cut`, `cost`. Status 0, or the line that does
// not hold.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "../require.h"
#include "admission/cut.h"
#include "admission/share.h"
#include "admission/time_slices.h"
#include "wire/wire.h"

using admission::Share;

// Somebody who takes whatever he is let: the time that he gets of 10 s, in thousandths.
int share_of_a_glutton(float share) {
    Share limit = admission::Budgets().of_rate();
    float used_us = 0;
    int changes = 0;
    bool runs = false;
    for (int ms = 0; ms < 10000; ++ms) {
        limit.pass(share, 1000, runs ? 1000 : 0);
        changes += runs != limit.in_credit();
        runs = limit.in_credit();
        if (runs) used_us += 1000;
    }
    REQUIRE(changes < 600);  // turns of 20 ms
    return static_cast<int>(used_us / 10000);
}

void rate() {
    for (int share : {10, 50, 200, 500, 900}) REQUIRE(abs(share_of_a_glutton(share / 1000.f) - share) < 20);
    // A long rest is not saved up for ever: what it allows at once is bounded.
    Share rested = admission::Budgets().of_rate();
    for (int s = 0; s < 3600; ++s) rested.pass(0.5f, 1e6f, 0);
    float at_once = 0;
    while (rested.in_credit()) {
        rested.pass(0.5f, 1000, 1000);
        at_once += 1000;
    }
    REQUIRE(at_once <= 2 * rested.turn_us() + 1000);
    // Nor is a feast: after it, one is let in again soon.
    Share feasted = admission::Budgets().of_rate();
    for (int s = 0; s < 3600; ++s) feasted.pass(0.1f, 1e6f, 1e6f);
    float waited = 0;
    while (!feasted.in_credit()) {
        feasted.pass(0.1f, 1000, 0);
        waited += 1000;
    }
    REQUIRE(waited <= (Share::kMostDebtUs + feasted.turn_us()) / 0.1f + 2000);
    // A new rate begins with its part of a turn, once; the same one goes on where it was; after none it is new again.
    admission::Budgets budgets;
    for (int again = 0; again < 2; ++again) {
        budgets.pass(0.5f, 0, {0, 0});
        REQUIRE(!budgets.over_rate() && budgets.of_rate().credit_us() == 0.5f * budgets.of_rate().turn_us());
        for (int ms = 0; ms < 30; ++ms) budgets.pass(0.5f, 0, {1000, 1000});
        REQUIRE(budgets.over_rate() && !budgets.below_floor());
        budgets.pass(0, 0, {1000, 1000});
        REQUIRE(!budgets.over_rate());
    }
    // A floor is had when it is due, and not any more when it is not promised.
    for (int ms = 0; ms < 100; ++ms) budgets.pass(0, 0.1f, {1000, 0});
    REQUIRE(budgets.below_floor());
    for (int ms = 0; ms < 100; ++ms) budgets.pass(0, 0.1f, {1000, 1000});
    REQUIRE(!budgets.below_floor());
    for (int ms = 0; ms < 5000; ++ms) budgets.pass(0, 0.1f, {1000, 0});
    REQUIRE(budgets.below_floor());
    budgets.pass(0, 0, {1000, 0});
    REQUIRE(!budgets.below_floor());
    // Who comes from a long rest is owed a turn, and pays back what it had too much meanwhile.
    const Share& floor = budgets.of_floor();
    budgets.pass(0, 0.1f, {0, 0, true, 3.6e9f});
    REQUIRE(budgets.below_floor() && floor.credit_us() == floor.turn_us());
    for (int ms = 0; ms < 20; ++ms) budgets.pass(0, 0.1f, {1000, 1000});
    REQUIRE(!budgets.below_floor() && floor.credit_us() < -10000);
    budgets.pass(0, 0.1f, {0, 0, true, 50000});
    REQUIRE(!budgets.below_floor() && floor.credit_us() > -10000);
    // A rest takes nothing of what it was owed before.
    for (int ms = 0; ms < 3000; ++ms) budgets.pass(0, 0.1f, {1000, 0});
    budgets.pass(0, 0.1f, {0, 0, true, 1000});
    REQUIRE(floor.credit_us() == admission::Budgets::kMostOfFloorUs);
}

// How long a tenant waits for its floor beside a higher class, after it has run for a second; ms.
int wait_for_floor(float share, bool beside_a_higher_class) {
    admission::Budgets budgets;
    for (int ms = 0; ms < 1000; ++ms) budgets.pass(0, share, {1000, 1000, beside_a_higher_class});
    int waited = 0;
    for (; !budgets.below_floor(); ++waited) budgets.pass(0, share, {1000, 0, true});
    return waited;
}

void floors() {
    // What nobody else wanted is forgotten soon; what was taken from a higher class (a kernel of a second) is not.
    for (float share : {0.02f, 0.05f, 0.1f}) {
        float turn_ms = admission::Budgets::kFloorTurnUs / share / 1000;
        REQUIRE(static_cast<float>(wait_for_floor(share, false)) <= 500 + turn_ms + 2);
        REQUIRE(static_cast<float>(wait_for_floor(share, true)) >= 100 / share);
    }
    // A debt that is larger already stays as it is while spare time is used.
    admission::Budgets budgets;
    for (int ms = 0; ms < 1000; ++ms) budgets.pass(0, 0.05f, {1000, 1000, true});
    for (int ms = 0; ms < 100; ++ms) budgets.pass(0, 0.05f, {1000, 1000, false});
    REQUIRE(budgets.of_floor().credit_us() == -Share::kMostDebtUs);
}

void slices() {
    using admission::time_slice_for;
    REQUIRE(time_slice_for({wire::production, false}) == 1000000);
    REQUIRE(time_slice_for({wire::standard, true}) == 2000);
    uint32_t drained = time_slice_for({wire::opportunistic, false, 1000, true, false});
    uint32_t cut = time_slice_for({wire::opportunistic, false, 1000, true, true});
    REQUIRE(cut < 100 && drained >= 1000 && drained <= 2500);
    // With nobody above there is nobody to be cut for.
    REQUIRE(time_slice_for({wire::opportunistic, false, 1000, false, true}) == 0);
    // Two with slices shorter than a switch would never end a kernel.
    REQUIRE(time_slice_for({wire::opportunistic, false, 1000, true, true, true}) == 0);
    // Two production jobs, or one beside a floor, must not keep each other off for a second; weights count.
    uint32_t one = time_slice_for({wire::production, true, 1000}),
             three = time_slice_for({wire::production, true, 3000});
    REQUIRE(one <= 5000 && three == 3 * one);
    REQUIRE(time_slice_for({wire::production, true, 1}) > 0);
    // Copies: neither do these keep each other's waiting.
    using admission::copy_slice_for;
    REQUIRE(copy_slice_for({wire::opportunistic, false}) < 100 && copy_slice_for({wire::standard, false}) == 0);
    REQUIRE(copy_slice_for({wire::production, false}) > 2000 && copy_slice_for({wire::production, true}) == 0);
}

// What is left of the kernel that runs at a random moment, in a job of these kernels one after the other.
float rest_of(std::initializer_list<double> kernels_us) {
    admission::RecentKernels recent;
    for (double us : kernels_us) recent.saw(us, us * us);
    return recent.rest_us();
}

void cut() {
    using admission::kCutCostUs;
    using admission::shall_cut;
    REQUIRE(rest_of({}) == 0 && rest_of({400}) == 200 && rest_of({400, 400, 400}) == 200);
    // Of 990 short kernels and one long one, the long one is met as often as all of the others together.
    admission::RecentKernels mixed;
    for (int i = 0; i < 990; ++i) mixed.saw(10, 100);
    mixed.saw(9900, 9900. * 9900);
    REQUIRE(mixed.rest_us() > 2400 && mixed.rest_us() < 2500);
    // Kernels of 0.2 ms are cut; short ones, of which 0.1 ms stand between two gates, drain.
    REQUIRE(shall_cut(false, rest_of({200}), kCutCostUs) && !shall_cut(true, rest_of({100}), kCutCostUs));
    // Near the border it stays as it is.
    REQUIRE(shall_cut(true, rest_of({160}), kCutCostUs) && !shall_cut(false, rest_of({160}), kCutCostUs));
    // It follows: two seconds of short kernels after ten of long ones.
    admission::RecentKernels recent;
    auto run = [&](double us, double seconds) {
        for (double at = 0; at < seconds * 1e6; at += us) {
            recent.pass(us);
            recent.saw(us, us * us);
        }
    };
    run(1000, 10);
    REQUIRE(recent.rest_us() > 499 && recent.rest_us() < 501);
    run(50, 3);
    REQUIRE(recent.rest_us() < 60);
    // From look to look: what was seen before the last one fades once.
    admission::Cutting cutting;
    for (int look = 1; look <= 100; ++look) cutting.look(look * 1e4, 1e4, 1e4 * 400, kCutCostUs);
    REQUIRE(cutting.cuts() && std::abs(cutting.rest_us() - 200) < 1);
    cutting.look(101e4, 1e4, 1e4 * 10, kCutCostUs);
    REQUIRE(cutting.cuts() && cutting.rest_us() > 190);
    for (int look = 102; look <= 600; ++look) cutting.look(look * 1e4, 1e4, 1e4 * 10, kCutCostUs);
    REQUIRE(!cutting.cuts());
}

// How long production waits on a GPU where a change of contexts and a cut take so long, and one burst in 20 waits for
// something else.
struct Waiting {
    float change_us, cut_us;
    admission::CutCost cost{};
    int burst = 0;

    void saw(bool cut, float rest_us, int bursts) {
        for (int i = 0; i < bursts; ++i) {
            float jitter = static_cast<float>(++burst * 37 % 61 - 30);
            float waited = change_us + (cut ? cut_us : rest_us) + jitter;
            cost.saw(cut, rest_us, burst % 20 ? waited : 4000);
        }
    }
    // As a tenant with kernels of one length does it, by what it has learned so far.
    bool decide(float rest_us, int looks) {
        bool cuts = admission::shall_cut(false, rest_us, cost.us());
        for (int i = 0; i < looks; ++i) {
            saw(cuts, rest_us, 1);
            cuts = admission::shall_cut(cuts, rest_us, cost.us());
        }
        return cuts;
    }
};

void cost() {
    using admission::kCutCostUs;
    REQUIRE(admission::CutCost().us() == kCutCostUs);
    // What is only drained says nothing of a cut, however dear a change of contexts is.
    Waiting drained{600, 0};
    drained.saw(false, 50, 500);
    REQUIRE(std::abs(drained.cost.us() - kCutCostUs) < 1);
    // Both are seen: the cost is what they differ by.
    for (float change : {60.0f, 140.0f, 500.0f})
        for (float cut : {30.0f, 150.0f, 400.0f}) {
            Waiting both{change, cut};
            for (int i = 0; i < 30; ++i) {
                both.saw(true, 200, 10);
                both.saw(false, 200, 10);
            }
            REQUIRE(std::abs(both.cost.us() - cut) < 60);
        }
    // Where a cut takes 2 ms, kernels of 1 ms are drained soon, and where it takes nothing they are cut.
    REQUIRE(!Waiting({140, 2000}).decide(500, 100) && Waiting({140, 10}).decide(500, 100));
    // A GPU that is slow to change contexts cuts like any other, once that has been found out.
    REQUIRE(Waiting({1500, 50}).decide(500, 500));
    // The prior is worth some waits, not all: a second of bursts is enough.
    Waiting one{140, 2000};
    one.saw(true, 500, 2);
    REQUIRE(one.cost.us() < 700);
    one.saw(true, 500, 50);
    REQUIRE(one.cost.us() > 250);
}

int main(int, char** argv) {
    if (!strcmp(argv[1], "cost")) cost();
    if (!strcmp(argv[1], "rate")) rate();
    if (!strcmp(argv[1], "floors")) floors();
    if (!strcmp(argv[1], "slices")) slices();
    if (!strcmp(argv[1], "cut")) cut();
    return 0;
}
