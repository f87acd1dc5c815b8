// The thread that moves this process's memory: it leaves when somebody needs the room or a person says so, and comes
// back when there is room. In between the program's threads wait at the barrier (pause.h).
//
//   resident ── asked, or by hand ──> leaving: barrier up, work drains, copied to the host ──> away
//      ^                                  │ refused: in the slot stands why                     │
//      └──────────────────────────────────┴──────────── room for all of it ── returning <───────┘
#pragma once

#include "tenant/driver_calls.h"
#include "wire/wire.h"

namespace tenant {

class Membership;

// When there is something to move, or somebody has asked for a pause; once, in a tenant whose memory moves.
void start_moving(Membership& membership);
// It looks at once, instead of when its nap is over.
void wake_mover();

// What the program has no use for now is asked of a helper inside it, if there is one (src/cotenant/guest/torch.py).
extern "C" {
// Waits until the next question; its number, or 0 after `timeout_ms`.
__attribute__((visibility("default"))) uint32_t cotenant_memory_question(uint32_t timeout_ms);
// The answer: `count` pairs of address and bytes.
__attribute__((visibility("default"))) void cotenant_memory_unused(uint32_t question, const uint64_t* ranges,
                                                                   uint32_t count);
}

}  // namespace tenant
