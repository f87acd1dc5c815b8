// breakdown CASE: where the time of bursts goes, by hand-made looks (native/tenant/breakdown.h).
#include "tenant/breakdown.h"

#include <cstring>

#include "../require.h"

namespace tenant {
DriverCalls driver;
}

namespace {

using tenant::Breakdown;

constexpr uint64_t kMs = 1000000;

bool reached = false;
auto* const kContext = reinterpret_cast<CUcontext>(0x1000);
CUcontext current = kContext;

void make_driver() {
    tenant::driver.cuCtxGetCurrent = [](CUcontext* out) { return *out = current, CUDA_SUCCESS; };
    tenant::driver.cuEventCreate = [](CUevent* out, unsigned int) {
        return *out = reinterpret_cast<CUevent>(0x2000), CUDA_SUCCESS;
    };
    tenant::driver.cuEventRecord = [](CUevent, CUstream) { return CUDA_SUCCESS; };
    tenant::driver.cuEventQuery = [](CUevent) { return reached ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY; };
}

void starts() {
    static wire::Slot slot;
    static Breakdown breakdown;
    static tenant::StreamState state;
    state.context = kContext;
    state.gpu = 3;
    wire::OnGpu& here = slot.gpus[3];
    uint64_t now = 5000 * kMs;
    REQUIRE(breakdown.begin(state, now) && breakdown.is_timing());
    // It is not there at 4 ms, and is at 6: somewhere between.
    breakdown.look_at_start(slot, now + 2 * kMs);
    breakdown.look_at_start(slot, now + 4 * kMs);
    REQUIRE(here.waits.load() == 0 && breakdown.is_timing());
    reached = true;
    breakdown.look_at_start(slot, now + 6 * kMs);
    REQUIRE(here.waits.load() == 1 && here.waited_ns.load() == 5 * kMs && !breakdown.is_timing());
    REQUIRE(slot.waiting[3].sum_ns.load() == 5 * kMs);
    breakdown.look_at_start(slot, now + 8 * kMs);
    REQUIRE(here.waits.load() == 1);
    // Every 20 ms one is timed. Of one that the first look finds, nothing is known but that it came before.
    REQUIRE(!breakdown.begin(state, now + 19 * kMs));
    now += 20 * kMs;
    REQUIRE(breakdown.begin(state, now));
    breakdown.look_at_start(slot, now + 2 * kMs);
    REQUIRE(here.waits.load() == 2 && here.waited_ns.load() == 6 * kMs);
    // A look from before the launch is none.
    now += 20 * kMs;
    REQUIRE(breakdown.begin(state, now));
    breakdown.look_at_start(slot, now - kMs);
    REQUIRE(here.waits.load() == 3 && here.waited_ns.load() == 6 * kMs);
    // A stream that waits for something else is given up after a second, and counts for nothing.
    now += 20 * kMs;
    reached = false;
    REQUIRE(breakdown.begin(state, now));
    breakdown.look_at_start(slot, now + 999 * kMs);
    REQUIRE(breakdown.is_timing());
    breakdown.look_at_start(slot, now + 1000 * kMs);
    REQUIRE(!breakdown.is_timing() && here.waits.load() == 3);
    // The thread is in another context than the stream's: an event of this one cannot be recorded there.
    current = reinterpret_cast<CUcontext>(0x1100);
    REQUIRE(!breakdown.begin(state, now + 2000 * kMs) && !breakdown.is_timing());
    // The next is timed from its own beginning, on its own GPU, also after a context has ended that was being timed.
    state.context = current;
    state.gpu = 5;
    breakdown.forget_context(kContext);
    now += 3000 * kMs;
    REQUIRE(breakdown.begin(state, now) && !breakdown.begin(state, now + 20 * kMs));
    breakdown.forget_context(kContext);
    REQUIRE(breakdown.is_timing());
    breakdown.look_at_start(slot, now + 2 * kMs);
    breakdown.forget_context(current);
    REQUIRE(!breakdown.is_timing());
    reached = true;
    breakdown.look_at_start(slot, now + 3 * kMs);
    now += 40 * kMs;
    REQUIRE(breakdown.begin(state, now));
    breakdown.look_at_start(slot, now + 4 * kMs);
    REQUIRE(slot.gpus[5].waits.load() == 1 && slot.gpus[5].waited_ns.load() == 2 * kMs);
    REQUIRE(here.waits.load() == 3 && here.waited_ns.load() == 6 * kMs);
}

void gaps() {
    static wire::Slot slot;
    static Breakdown breakdown;
    wire::OnGpu& here = slot.gpus[1];
    auto look = [&](uint64_t ms, bool are_empty, bool goes_on, uint64_t burst_ms) {
        breakdown.saw_streams(here, 1, are_empty, goes_on, burst_ms * kMs, ms * kMs);
    };
    look(100, false, true, 95);
    look(103, true, false, 95);
    REQUIRE(here.gap_ns.load() == 0);
    // The burst goes on: what was empty in it was a gap.
    look(105, true, true, 95);
    REQUIRE(here.gap_ns.load() == 5 * kMs);
    look(107, false, true, 95);
    REQUIRE(here.gap_ns.load() == 5 * kMs);
    // It does not: what was empty after its end was none.
    look(110, true, false, 95);
    breakdown.saw_idle(1);
    look(150, false, true, 140);
    REQUIRE(here.gap_ns.load() == 5 * kMs);
    // Only since the burst began.
    look(200, true, true, 198);
    REQUIRE(here.gap_ns.load() == 7 * kMs);
    // What another GPU's streams do is another burst's.
    breakdown.saw_streams(slot.gpus[2], 2, true, false, 195 * kMs, 205 * kMs);
    look(206, false, true, 198);
    REQUIRE(here.gap_ns.load() == 7 * kMs);
    breakdown.saw_idle(1);
    breakdown.saw_streams(slot.gpus[2], 2, false, true, 195 * kMs, 210 * kMs);
    REQUIRE(slot.gpus[2].gap_ns.load() == 10 * kMs && here.gap_ns.load() == 7 * kMs);
}

void pace() {
    static wire::Slot slot;
    static Breakdown breakdown;
    wire::OnGpu& here = slot.gpus[0];
    uint64_t ms = 1000;
    auto window = [&](uint64_t last_ms, uint64_t kernels, uint64_t busy_ms, uint64_t gap_ms, bool alone) {
        ms += last_ms;
        here.figures.kernels.fetch_add(kernels);
        here.figures.bursts.fetch_add(1);
        here.busy_ns.fetch_add(busy_ms * kMs);
        here.gap_ns.fetch_add(gap_ms * kMs);
        breakdown.weigh(slot, 0, alone, ms * kMs);
    };
    auto now_us = [&] { return slot.pace[0].now_ns.load() / 1000; };
    auto alone_us = [&] { return slot.pace[0].alone_ns.load() / 1000; };
    window(0, 100, 400, 0, true);  // the program's start
    REQUIRE(now_us() == 0 && alone_us() == 0);
    window(500, 100, 300, 100, true);
    REQUIRE(now_us() == 2000 && alone_us() == 2000);
    // Too short, and too few operations: the window goes on.
    window(499, 10, 10, 0, true);
    window(1, 9, 10, 0, true);
    REQUIRE(now_us() == 2000);
    window(1, 1, 20, 0, true);
    REQUIRE(now_us() == 2000 && alone_us() == 2000);
    here.waits.store(2);
    here.waited_ns.store(100 * kMs);
    // Somebody was there for a part of it: each burst waited for the GPU as long as those that were timed.
    window(100, 100, 100, 0, false);
    window(400, 100, 300, 0, true);
    REQUIRE(now_us() == 1500 && alone_us() == 2000);
    window(500, 100, 300, 0, true);
    REQUIRE(now_us() == 3000 && alone_us() == 3000);
    window(500, 50, 10, 100, true);
    REQUIRE(now_us() == 0);
    here.figures.graphs.fetch_add(10);
    here.figures.copies.fetch_add(20);
    here.figures.memory_ops.fetch_add(30);
    window(500, 40, 100, 0, true);
    REQUIRE(now_us() == 1000);
}

}  // namespace

int main(int, char** argv) {
    make_driver();
    if (!strcmp(argv[1], "starts")) starts();
    if (!strcmp(argv[1], "gaps")) gaps();
    if (!strcmp(argv[1], "pace")) pace();
    return 0;
}
