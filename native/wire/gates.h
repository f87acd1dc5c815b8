// Busy flags, gates and turns in the segment: which tenants have work on a GPU, and which tenants' streams may go on
// (wire.h states the protocol).
#pragma once

#include "admission/admission.h"
#include "admission/turns.h"
#include "wire/wire.h"

namespace wire {

// Whether an owner with this heartbeat has been stopped. One from the future is nobody's.
bool is_stale(Segment& segment, uint64_t heartbeat_ns);
// Whether the slot's owner is alive and not stopped, and has work on this GPU.
bool has_work(Segment& segment, int index, int gpu);
// Whether any other tenant has work on this GPU, held at its gate or not.
bool anybody_at_work(Segment& segment, int index, int gpu);
// Whether any other tenant of these classes, `first` to `last`, uses this GPU, with work or without.
bool anybody_else(Segment& segment, int index, int gpu, uint32_t first, uint32_t last);
// Whether anybody has been promised a share of this GPU whatever the classes above do.
bool any_floor(Segment& segment, int gpu);
// Whether a tenant lets those below it run beside it now.
bool is_tolerant(const Slot& slot, int gpu);
// Whether somebody of a class above has work, and does not tolerate company.
bool is_above_busy(Segment& segment, int index, int gpu);
// How a tenant stands on a GPU, for admission::may_run.
admission::Standing standing(Segment& segment, int index, int gpu);

// The edge from idle to busy: says so, with a fresh heartbeat, then closes the gates below.
void go_busy(Segment& segment, int index, int gpu);
// The edge from busy to idle of an owner that launches nothing any more: opens what it kept closed.
void go_idle(Segment& segment, int index, int gpu);
// Closes the gates of those that this tenant keeps waiting; it has set its own `busy` before.
void close_gates_below(Segment& segment, int index, int gpu);
// Recomputes the gates of this class and those below it (of all, where classes do not matter). `ran_ns`: when the one
// that passes its turn on was last seen running; 0: nobody does.
void refresh_gates(Segment& segment, uint32_t tenant_class, int gpu, uint64_t ran_ns = 0);
// Recomputes a gate. Says whether the tenant may go on.
bool refresh_gate(Segment& segment, int index, int gpu, uint64_t ran_ns = 0);

// For one that passes gates. It has something to run again, and is about to launch it: takes the turn if it is free.
void go_ready(Segment& segment, int index, int gpu);
// It has run empty, and launches nothing any more: gives its turn away.
void go_empty(Segment& segment, int index, int gpu, uint64_t ran_ns);
// The same, where others are ready: it has no claim to what it did not use, and one of them goes next. It may be on
// until its gate has been closed for a moment: then leave_gpu.
void forgo_turn(Segment& segment, int index, int gpu);
// Its gate has had this value, closed, for so long that its streams stand: the next one may start.
void leave_gpu(Segment& segment, int index, int gpu, uint32_t gate, uint64_t ran_ns);
// Whether what another of its equals has started may be on the GPU, stopped or not.
bool is_equal_on(Segment& segment, int index, int gpu);
// Whether another of its equals is ready, and how many are with it.
uint32_t ready_equals(Segment& segment, int index, int gpu);
// Brings a tenant's turn key to those of its equals. One that was idle, or comes from another class or rule, has
// neither the right to all the time that the others have used meanwhile, nor a debt from when it had the GPU to itself.
void catch_up(Segment& segment, int index, int gpu);
// Charges GPU time to a tenant, for its turn among equals.
void charge(Segment& segment, int index, int gpu, uint64_t ns);

}  // namespace wire
