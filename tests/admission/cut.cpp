#include "admission/cut.h"

#include "../require.h"

using namespace admission;

// Each change costs: it cuts from well over the cost on, and drains again from well under it on.
int main() {
    for (float cost : {20.0f, kCutCostUs, 500.0f}) {
        REQUIRE(!shall_cut(false, cost * 1.1f, cost) && shall_cut(false, cost * 1.2f, cost));
        REQUIRE(shall_cut(true, cost * 0.9f, cost) && !shall_cut(true, cost * 0.8f, cost));
    }
    // Before anything was seen a cut costs what it does on an H200.
    REQUIRE(CutCost().us() == 80);
    // Short kernels are drained, but not of linked streams.
    Cutting cutting;
    REQUIRE(cutting.cuts());
    cutting.look(1000, 1000, 10000, kCutCostUs);
    REQUIRE(!cutting.cuts());
    cutting.look(2000, 1000, 10000, kCutCostUs, true);
    REQUIRE(cutting.cuts());
    cutting.look(3000, 1000, 10000, kCutCostUs);
    REQUIRE(!cutting.cuts());
    return 0;
}
