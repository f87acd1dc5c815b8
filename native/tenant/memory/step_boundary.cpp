#include "tenant/memory/step_boundary.h"

#include <algorithm>

#include "tenant/captures.h"
#include "tenant/fork.h"
#include "tenant/membership.h"
#include "tenant/memory/move_barrier.h"
#include "tenant/memory/residence.h"
#include "wire/sleep.h"

namespace tenant {

namespace {

// Longer than the mover takes to make the tenant still, or to give that up.
constexpr uint64_t kLongestStayNs = 6000000000;
constexpr uint32_t kRemembered = 4;  // a training may have steps of several kinds, in turn

std::atomic<uint64_t> began_ns{0};  // the step under way; 0: none has ended yet
std::atomic<uint64_t> lengths_ns[kRemembered];
std::atomic<uint32_t> steps{0};
std::atomic<uint32_t> awaited{0};  // the mover waits for a boundary
std::atomic<uint32_t> reached{0};  // a thread stays at one

void forget_in_child() {
    awaited.store(0);
    began_ns.store(0);
    for (auto& length : lengths_ns) length.store(0);
}
LISTEN(AtFork, ForkStep::step_boundary, forget_in_child)

uint64_t longest_ns() {
    uint64_t longest = 0;
    for (auto& length : lengths_ns) longest = std::max(longest, length.load());
    return longest;
}

}  // namespace

namespace step_boundary {

bool is_worth_waiting(uint64_t now, uint64_t latest_ns) {
    uint64_t began = began_ns.load(), length = longest_ns();
    if (!began || !length || now >= latest_ns || (awaited.load() && reached.load())) return false;
    // The next one is too far, or has not come when it should have: the training has ended, or does something else.
    if (began + length > latest_ns || now >= began + length + length / 2) return false;
    if (!awaited.load()) {
        reached.store(0);
        awaited.store(1);
    }
    return true;
}

void let_go() {
    awaited.store(0);
    wire::wake_here(awaited);
}

void begin_step() {
    if (began_ns.load()) began_ns.store(wire::now_ns());
}

}  // namespace step_boundary

extern "C" void cotenant_step_ended() {
    // A step that is being captured ends whenever the graph is launched, and nothing reports it then.
    if (!Still::memory_moves.load(std::memory_order_relaxed) || capture_is_open()) return;
    uint64_t now = wire::now_ns();
    if (uint64_t began = began_ns.exchange(now)) lengths_ns[steps.fetch_add(1) % kRemembered].store(now - began);
    if (!awaited.load()) return;
    reached.store(1);
    wake_mover();
    while (awaited.load() && wire::now_ns() - now < kLongestStayNs) wire::wait_here(awaited, 1, kLongestStayNs / 10);
    began_ns.store(wire::now_ns());
}

}  // namespace tenant
