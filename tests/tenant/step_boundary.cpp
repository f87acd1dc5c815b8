// step_boundary CASE: when the mover waits for the boundary between two steps (native/tenant/memory/step_boundary.h),
// by a clock of this test's own.
#include "tenant/memory/step_boundary.h"

#include <cstring>
#include <thread>

#include "../require.h"
#include "tenant/captures.h"
#include "tenant/fork.h"
#include "tenant/memory/move_barrier.h"
#include "tenant/memory/residence.h"
#include "wire/clock.h"
#include "wire/sleep.h"

namespace {

std::atomic<uint64_t> clock_ns{1000};
std::atomic<int> wakes{0};

}  // namespace

// The rest of the tenant, as far as it is asked.
namespace wire {
uint64_t now_ns() { return clock_ns.load(); }
}  // namespace wire
namespace tenant {
DriverCalls driver;
std::atomic<bool> Still::memory_moves{true};
void wake_mover() { wakes.fetch_add(1); }
}  // namespace tenant

namespace {

using tenant::cotenant_step_ended;
using tenant::step_boundary::is_worth_waiting;

constexpr uint64_t kFar = UINT64_MAX;

void let_go() { tenant::step_boundary::let_go(); }

// Whether the mover would wait, without keeping anybody at a boundary.
bool would_wait(uint64_t now, uint64_t latest) {
    bool worth = is_worth_waiting(now, latest);
    let_go();
    return worth;
}

// A step that takes this long; returns when it ended.
uint64_t step(uint64_t length) {
    clock_ns.fetch_add(length);
    cotenant_step_ended();
    return clock_ns.load();
}

void expected_in_time() {
    REQUIRE(!would_wait(clock_ns.load(), kFar));  // no step has ended yet
    step(500);
    REQUIRE(!would_wait(clock_ns.load(), kFar));  // one end is no length
    uint64_t began = step(1000);
    REQUIRE(would_wait(began, kFar));
    // Not where the next one comes after the latest moment, and not at that moment.
    REQUIRE(would_wait(began, began + 1000) && !would_wait(began, began + 999));
    REQUIRE(would_wait(began + 999, began + 1000) && !would_wait(began + 1000, began + 1000));
    // Not where it is late by half a step.
    REQUIRE(would_wait(began + 1499, kFar) && !would_wait(began + 1500, kFar));
    REQUIRE(wakes.load() == 0);
}

// Steps of several kinds, in turn: the longest of the last four counts.
void longest() {
    step(500);
    step(1000);
    step(10), step(10);
    uint64_t began = step(10);
    REQUIRE(would_wait(began, began + 1000) && !would_wait(began, began + 999));
    began = step(10);
    REQUIRE(would_wait(began, began + 10) && !would_wait(began, began + 9));
}

void not_counted() {
    step(500);
    tenant::captures.add(16, nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL);
    step(1000);
    REQUIRE(!would_wait(clock_ns.load(), kFar));
    tenant::captures.abandon();
    tenant::Still::memory_moves.store(false);
    step(1000);
    REQUIRE(!would_wait(clock_ns.load(), kFar));
    tenant::Still::memory_moves.store(true);
    uint64_t began = step(1000);  // since the one that was counted
    REQUIRE(would_wait(began, began + 3000) && !would_wait(began, began + 2999));
    // The memory was away meanwhile: the step begins with its return.
    clock_ns.fetch_add(100000);
    REQUIRE(!would_wait(clock_ns.load(), kFar));
    tenant::step_boundary::begin_step();
    REQUIRE(would_wait(clock_ns.load(), kFar));
    // A child has had no steps, and a restore alone begins none.
    tenant::tell<tenant::AtFork>([](const tenant::AtFork& one) { one.in_child(); });
    tenant::step_boundary::begin_step();
    REQUIRE(!would_wait(clock_ns.load(), kFar));
    step(1000);
    REQUIRE(!would_wait(clock_ns.load(), kFar));
}

// While the mover waits, a thread stays at its boundary; then the next step begins.
void stays() {
    step(500);
    uint64_t began = step(1000);
    REQUIRE(is_worth_waiting(began, kFar) && is_worth_waiting(began, kFar));
    std::atomic<bool> gone{false};
    std::thread job([&] {
        cotenant_step_ended();
        gone.store(true);
    });
    while (!wakes.load()) std::this_thread::yield();
    REQUIRE(!is_worth_waiting(began, kFar));  // it is there
    wire::nap(20000000);
    REQUIRE(!gone.load());
    clock_ns.fetch_add(300);
    let_go();
    job.join();
    REQUIRE(wakes.load() == 1);
    REQUIRE(would_wait(clock_ns.load() + 1499, kFar) && !would_wait(clock_ns.load() + 1500, kFar));
    // Whatever happens, nobody stays for good.
    REQUIRE(is_worth_waiting(clock_ns.load(), kFar) && is_worth_waiting(clock_ns.load(), kFar));
    std::thread forgotten([] { cotenant_step_ended(); });
    while (wakes.load() < 2) std::this_thread::yield();
    clock_ns.fetch_add(uint64_t{6000000000});
    forgotten.join();
}

}  // namespace

int main(int argc, char** argv) {
    const char* name = argc > 1 ? argv[1] : "";
    if (!strcmp(name, "expected_in_time"))
        expected_in_time();
    else if (!strcmp(name, "longest"))
        longest();
    else if (!strcmp(name, "not_counted"))
        not_counted();
    else if (!strcmp(name, "stays"))
        stays();
    else
        return 2;
    return 0;
}
