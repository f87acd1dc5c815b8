// captures: which captures are open (native/tenant/captures.h).
#include "tenant/captures.h"

#include <initializer_list>
#include <thread>

#include "../require.h"

namespace tenant {
DriverCalls driver;
}

namespace {

CUcontext const kContext = reinterpret_cast<CUcontext>(0x1000), kOther = reinterpret_cast<CUcontext>(0x2000);
constexpr auto kGlobal = CU_STREAM_CAPTURE_MODE_GLOBAL, kLocal = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
               kRelaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

// Whether CUDA refuses such a call to a thread that has begun no capture.
bool refuses_another(const tenant::Captures& open, CUstreamCaptureMode mode) {
    bool refused = false;
    std::thread([&] { refused = open.refuse(mode); }).join();
    return refused;
}

// The table of captures.h.
void check_refusals() {
    for (auto begun : {kGlobal, kLocal, kRelaxed})
        for (auto mode : {kGlobal, kLocal, kRelaxed}) {
            tenant::Captures open;
            REQUIRE(!open.refuse(mode));
            open.add(1, kContext, begun);
            REQUIRE(open.refuse(mode) == (begun != kRelaxed && mode != kRelaxed));
            REQUIRE(refuses_another(open, mode) == (begun == kGlobal && mode == kGlobal));
            // Beside it, one that forbids nothing.
            open.add(2, kContext, kRelaxed);
            REQUIRE(open.refuse(mode) == (begun != kRelaxed && mode != kRelaxed));
            open.remove_all_of(kContext);
            REQUIRE(open.load() == 0 && !open.refuse(mode));
        }
}

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
    REQUIRE(open.load() == 0 && !open.find(1));
    open.remove(open.find(1));
    REQUIRE(open.load() == 0);
    // What a forked child finds is its parent's.
    open.add(1, kContext, kGlobal);
    open.abandon();
    REQUIRE(open.load() == 0 && !open.find(1) && !open.refuse(kGlobal));
    check_refusals();
    return 0;
}
