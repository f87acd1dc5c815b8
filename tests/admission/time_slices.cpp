#include "admission/time_slices.h"

#include "../require.h"

using namespace admission;

// A slice in the table of time_slices.h: kernels, then copies.
bool has(const Slicing& slicing, uint32_t kernels_us, uint32_t copies_us) {
    return time_slice_for(slicing) == kernels_us && copy_slice_for(slicing) == copies_us;
}

int main() {
    REQUIRE(has({kProduction, false}, 1000000, 10000) && has({kProduction, true, 3000}, 6000, 0));
    REQUIRE(has({kStandard, false}, 1000, 0) && has({kStandard, true}, 2000, 0));
    REQUIRE(has({kStandard, false, 1000, true, true}, 30, 0) && has({kStandard, false, 1000, false, true}, 0, 0));
    REQUIRE(has({kOpportunistic, true, 2500}, 5000, 30) && has({kOpportunistic, true, 1}, 30, 30));
    // A floor needs more than a slice of weight 1 where it is large, is one of several, or production's weight is.
    REQUIRE(weight_for_floor(50, 50, 1000) == 1000 && weight_for_floor(50, 50, 0) == 1000);
    REQUIRE(weight_for_floor(500, 500, 1000) == 1500 && weight_for_floor(500, 500, 4000) == 6000);
    REQUIRE(weight_for_floor(300, 600, 2000) == 2250);
    // So each has its floor, if all others always have work: a part of all slices.
    for (uint32_t above : {1000u, 4000u}) {
        double a = weight_for_floor(250, 800, above), b = weight_for_floor(550, 800, above);
        REQUIRE(a / (a + b + above) >= 0.25 && b / (a + b + above) >= 0.55);
    }
    // Whatever others say.
    REQUIRE(weight_for_floor(900, 900, 1000) == 13500 && weight_for_floor(900, UINT32_MAX, 1000) == 13500);
    REQUIRE(weight_for_floor(1000, 0, UINT32_MAX) == 1000000 && weight_for_floor(100, 50, 1000) == 1000);
    // Beside kernels that are cut, and where two production jobs work at the same time.
    Slicing shared{kProduction, true, 3000};
    shared.contends = true;
    REQUIRE(has(shared, 6000, 0));
    shared.cuts_below = true;
    REQUIRE(has(shared, 9000, 0));
    shared.contends = false;
    REQUIRE(has(shared, 60000, 0));
    shared.shares = false;
    REQUIRE(has(shared, 1000000, 10000));
    Slicing below{kOpportunistic, false};
    REQUIRE(has(below, 1000, 30));
    below.cuts = true;
    REQUIRE(has(below, 30, 30));
    below.stands_still = true;
    REQUIRE(has(below, 500, 30) && is_cut_at(500));
    REQUIRE(is_cut_at(30) && is_cut_at(999) && !is_cut_at(1000) && !is_cut_at(0));
    // Two with such slices would cut each other for ever.
    below.overlaps = true;
    REQUIRE(has(below, 0, 30));
    below = {kOpportunistic, false};
    below.stands_still = true;
    REQUIRE(has(below, 1000, 30));
    REQUIRE(has({kOpportunistic, false, 1000, false, true}, 0, 30));
    return 0;
}
