// captures: which captures are open (native/tenant/captures.h).
#include "tenant/captures.h"

#include "../require.h"

namespace tenant {
DriverCalls driver;
}

namespace {

CUcontext const kContext = reinterpret_cast<CUcontext>(0x1000), kOther = reinterpret_cast<CUcontext>(0x2000);
constexpr auto kGlobal = CU_STREAM_CAPTURE_MODE_GLOBAL, kRelaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

}  // namespace

int main() {
    tenant::Captures open;
    open.add(1, kContext, kGlobal);
    uint64_t first = open.find(1);
    open.add(2, kOther, kGlobal);
    REQUIRE(open.load() == 2 && first && open.find(2) != first);
    // Its first capture has ended without our seeing it: it counts no longer, nor is it what a late end is about.
    open.add(1, kContext, kRelaxed);
    REQUIRE(open.load() == 2 && open.find(1) != first);
    open.remove(first);
    REQUIRE(open.load() == 2 && open.find(1));
    open.remove_all_of(kOther);
    REQUIRE(open.load() == 1 && !open.find(2));
    REQUIRE(!open.refuse(kGlobal));
    open.remove(open.find(1));
    REQUIRE(open.load() == 0);
    return 0;
}
