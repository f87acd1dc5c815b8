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
    return 0;
}
