// The thread that moves this process's memory: it leaves when somebody needs the space or a person says so, and comes
// back when there is space. In between the program's threads wait at the barrier (move_barrier.h).
//
//   resident ── asked, or by hand ──> leaving: barrier up, work drains, copied to the host ──> away
//      ^                                  │ refused: in the slot stands why                     │
//      └──────────────────────────────────┴──────────── space for all of it ── returning <───────┘
#pragma once

#include "tenant/driver_calls.h"
#include "wire/wire.h"

namespace tenant {

class Membership;

// When there is something to move, or somebody has asked for a pause; once, in a tenant whose memory moves.
void start_moving(Membership& membership);

}  // namespace tenant
