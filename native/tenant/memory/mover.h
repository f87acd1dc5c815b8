// The thread that moves this process's memory: it evicts the memory when another tenant needs the space or a person
// asks for a pause, and restores it when there is space. In between the program's threads wait at the move barrier
// (move_barrier.h). The words in the slot are wire::Where's.
//
//   resident ── asked, or by hand ──> evicting: barrier up, work drains, copied to the host ──> evicted
//      ^                                  │ refused: in the slot stands why                       │
//      └──────────────────────────────────┴──────────── space for all of it ── restoring <────────┘
#pragma once

#include "tenant/driver_calls.h"
#include "wire/wire.h"

namespace tenant {

class Membership;

// Starts the thread, once, in a tenant whose memory moves: when there is memory to move, or a person asks for a pause.
void start_moving(Membership& membership);

}  // namespace tenant
