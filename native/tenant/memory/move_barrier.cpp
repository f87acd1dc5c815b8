#include "tenant/memory/move_barrier.h"

#include "tenant/fork.h"
#include "tenant/raw_child.h"
#include "wire/clock.h"
#include "wire/sleep.h"

namespace tenant {

std::atomic<bool> Still::memory_moves{false};

namespace {

alignas(64) std::atomic<uint32_t> inside{0};
alignas(64) std::atomic<uint32_t> raised{0};
std::atomic<bool> is_over{false};
// One call may be made of others.
thread_local uint32_t depth = 0;

void forget_in_child() {
    is_over.store(false);
    inside.store(0);
    raised.store(0);
    depth = 0;
}
LISTEN(AtFork, ForkStep::move_barrier, forget_in_child)

bool go_inside_if_down() {
    inside.fetch_add(1);
    if (!raised.load()) return true;
    inside.fetch_sub(1);
    return false;
}

void go_inside() {
    while (!go_inside_if_down()) wire::wait_here(raised, 1, wire::kForEver);
}

}  // namespace

void Still::enter() {
    look_for_raw_child();
    entered_ = true;
    if (depth++ == 0) go_inside();
}

void Still::leave() {
    if (--depth == 0) inside.fetch_sub(1);
}

bool Still::too_late() { return is_over.load(); }

Outside::Outside() : depth_(depth) {
    depth = 0;
    if (depth_) inside.fetch_sub(1);
}

bool Outside::end_if_down() {
    if (depth_ && !go_inside_if_down()) return false;
    depth += depth_;
    depth_ = 0;
    return true;
}

Outside::~Outside() {
    if (depth_) go_inside();
    depth += depth_;
}

namespace move_barrier {

bool raise(uint64_t patience_ns) {
    raised.store(1);
    for (uint64_t began = wire::now_ns(); inside.load();) {
        if (wire::now_ns() - began > patience_ns) {
            lower();
            return false;
        }
        wire::nap(50000);
    }
    return true;
}

void lower() {
    raised.store(0);
    wire::wake_here(raised);
}

void lower_at_exit() {
    is_over.store(true);
    lower();
}

}  // namespace move_barrier

}  // namespace tenant
