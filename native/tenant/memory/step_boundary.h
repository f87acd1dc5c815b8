// The boundary between two steps of a training. There most of what a step computes with is free in the framework's
// allocator and need not be saved; in the middle of a step it is not. So a job that is asked to leave goes on to the
// next boundary, where that is near. A helper inside the program says when there is one (src/cotenant/guest/torch.py).
//
// The mover says that it waits; a thread that comes to a boundary then stays there until the mover has seen what is
// free, so that the next step does not begin. Whatever happens, no thread stays for longer than a few seconds.
#pragma once

#include <cstdint>

namespace tenant {

namespace step_boundary {

// Whether one that shall leave does better to wait for a boundary: false where a thread stands at one, and where none
// is to be expected before `latest_ns`. After true, threads stay at boundaries until `let_go`.
bool is_worth_waiting(uint64_t now, uint64_t latest_ns);
void let_go();
// A step goes on, or begins, after a time that the tenant was away.
void begin_step();

}  // namespace step_boundary

// A thread is at a boundary now.
extern "C" __attribute__((visibility("default"))) void cotenant_step_ended();

}  // namespace tenant
