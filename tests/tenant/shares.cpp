// Pure parts of how a tenant shares: `shares rate`, `shares slices`. Status 0, or the line that does not hold.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "../require.h"
#include "tenant/share.h"
#include "tenant/time_slice.h"
#include "wire/wire.h"

using tenant::Share;

// Somebody who takes whatever he is let: the time that he gets of 10 s, in thousandths.
int share_of_a_glutton(float share) {
    Share limit;
    float used_us = 0;
    int changes = 0;
    bool runs = false;
    for (int ms = 0; ms < 10000; ++ms) {
        limit.pass(share, 1000, runs ? 1000 : 0);
        changes += runs != limit.in_credit();
        runs = limit.in_credit();
        if (runs) used_us += 1000;
    }
    REQUIRE(changes < 2000);  // turns of some milliseconds
    return static_cast<int>(used_us / 10000);
}

void rate() {
    for (int share : {10, 50, 200, 500, 900}) REQUIRE(abs(share_of_a_glutton(share / 1000.f) - share) < 20);
    // A long rest is not saved up for ever: what it allows at once is bounded.
    Share rested;
    for (int s = 0; s < 3600; ++s) rested.pass(0.5f, 1e6f, 0);
    float at_once = 0;
    while (rested.in_credit()) {
        rested.pass(0.5f, 1000, 1000);
        at_once += 1000;
    }
    REQUIRE(at_once <= 2 * Share::kMemoryUs + 1000);
    // Nor is a feast: after it, one is let in again soon.
    Share feasted;
    for (int s = 0; s < 3600; ++s) feasted.pass(0.1f, 1e6f, 1e6f);
    float waited = 0;
    while (!feasted.in_credit()) {
        feasted.pass(0.1f, 1000, 0);
        waited += 1000;
    }
    REQUIRE(waited <= (Share::kMemoryUs + Share::kTurnUs) / 0.1f + 2000);
}

void slices() {
    using tenant::time_slice_for;
    REQUIRE(time_slice_for({wire::production, false}) == 1000000);
    REQUIRE(time_slice_for({wire::standard, false}) == 0 && time_slice_for({wire::standard, true}) == 0);
    uint32_t drained = time_slice_for({wire::opportunistic, false, 1000, 500});
    uint32_t cut = time_slice_for({wire::opportunistic, false, 1000, 11000});
    REQUIRE(cut < 100 && drained >= 1000 && drained <= 2500);
    // Two production jobs, or one beside a floor, must not keep each other off for a second; weights count.
    uint32_t one = time_slice_for({wire::production, true, 1000}),
             three = time_slice_for({wire::production, true, 3000});
    REQUIRE(one <= 5000 && three == 3 * one);
    REQUIRE(time_slice_for({wire::production, true, 1}) > 0);
    // Copies: neither do these keep each other's waiting.
    using tenant::copy_slice_for;
    REQUIRE(copy_slice_for({wire::opportunistic, false}) < 100 && copy_slice_for({wire::standard, false}) == 0);
    REQUIRE(copy_slice_for({wire::production, false}) > 2000 && copy_slice_for({wire::production, true}) == 0);
}

int main(int, char** argv) {
    if (!strcmp(argv[1], "rate")) rate();
    if (!strcmp(argv[1], "slices")) slices();
    return 0;
}
