// The boundary between two steps of a training. At a boundary most of the memory that a step computes with is free in
// the framework's allocator and need not be saved; in the middle of a step it is in use. So the mover lets a job that
// it has to evict run on to the next boundary, where that is near. A helper inside the program calls
// cotenant_step_ended at each boundary (src/cotenant/guest/torch.py).
//
// While the mover waits, a thread that reaches a boundary stays there until the mover has seen what is free, so that
// the next step does not begin. No thread stays for longer than a few seconds, whatever happens.
#pragma once

#include <cstdint>

namespace tenant {

namespace step_boundary {

// Whether the mover should wait for a boundary before it evicts: false where a thread stands at one, and where none is
// to be expected before `latest_ns`. After true, threads stay at boundaries until `let_go`.
bool is_worth_waiting(uint64_t now, uint64_t latest_ns);
void let_go();
// A step goes on, or begins, after the memory was restored.
void begin_step();

}  // namespace step_boundary

// A thread is at a boundary now.
extern "C" __attribute__((visibility("default"))) void cotenant_step_ended();

}  // namespace tenant
