// What is done around a fork: the child has one thread, and neither its parent's slot nor its parent's GPU memory.
// Every room that keeps state forgets it in the child, and initialises its locks again: another thread of the parent
// may have held them.
//
// In the child nothing allocates and nothing waits. A child of which no handler is told is noticed later (raw_child.h).
#pragma once

#include <cstdint>

#include "tenant/listeners.h"

namespace tenant {

// After a fork, in the parent and in the child, in this order; before it, in the opposite one.
enum class ForkStep : uint8_t {
    driver,
    recorder,
    timeline,
    membership,
    lanes,
    mps,
    leave_in_order,
    captures,
    detour,
    graphs,
    time_slice,
    residence,
    movable,
    deferred_free,
    physical,
    move_barrier,
    used_contexts,
    ledger,
    pools,
    driver_memory,
    mover,
    step_boundary,
    unused_ranges,
    ipc_export,
    ipc_import,
    kSteps,
};

struct AtFork {
    ForkStep step;
    void (*in_child)();
    void (*before)() = nullptr;
    void (*in_parent)() = nullptr;
};
LISTENERS(AtFork)

// From the first call on. False: the system has no memory for it.
bool mind_forks();
// Whether this process, or the one it was forked from, began unnoticed, with a driver that may not have noticed either.
bool is_raw_child();

}  // namespace tenant
