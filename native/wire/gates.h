// Busy flags, gates and turns in the segment: which tenants have work on a GPU, and which tenants' streams may go on
// (wire.h states the protocol).
#pragma once

#include "admission/admission.h"
#include "admission/company.h"
#include "admission/turn_keys.h"
#include "wire/wire.h"

namespace wire {

// Whether an owner with this heartbeat has been stopped. A heartbeat from the future counts as stale.
bool is_stale(Segment& segment, uint64_t heartbeat_ns);
// Whether the slot's owner is alive and not stopped, and has work on this GPU.
bool has_work(Segment& segment, int index, int gpu);
// Whether any other tenant has work on this GPU, held at its gate or not.
bool anybody_at_work(Segment& segment, int index, int gpu);
// Whether any other tenant of these classes, `first` to `last`, uses this GPU, with work or without.
bool anybody_else(Segment& segment, int index, int gpu, uint32_t first, uint32_t last);
// Who else uses this GPU, by their classes against this tenant's, and whether these are company for it.
admission::Others others_of(Segment& segment, int index, int gpu);
bool has_company(Segment& segment, int index, int gpu, const admission::Others& others);
// How many copies tenants of higher classes have launched on this GPU, ever: a sum that changes while they copy.
uint64_t copies_above(Segment& segment, int index, int gpu);
// How many bursts of tenants of higher classes were timed on this GPU, ever, and how long they have waited for it in
// all.
struct Waits {
    uint32_t count = 0;
    uint64_t ns = 0;
};
Waits waits_above(Segment& segment, int index, int gpu);
// Whether a tenant of a higher class has work on this GPU, or began a burst since this was last asked with `bursts`.
bool worked_above(Segment& segment, int index, int gpu, uint64_t& bursts);
// Whether another tenant of this class has work on this GPU; of this class or a lower one.
bool is_equal_at_work(Segment& segment, int index, int gpu);
bool is_equal_or_below_at_work(Segment& segment, int index, int gpu);
// Whether a tenant of a lower class that uses this GPU has its kernels cut; and one of them may be on the GPU.
bool is_cut_below(Segment& segment, int index, int gpu);
bool is_cut_below_on(Segment& segment, int index, int gpu);
bool is_production_at_work(Segment& segment, int gpu);
// Whether what a tenant of a lower class has started may be on this GPU.
bool is_below_on(Segment& segment, int index, int gpu);
// Whether a tenant that uses this GPU has got less than its floor.
bool is_any_below_floor(Segment& segment, int gpu);
// The share of this GPU's time that the hardware gives to a tenant with work on it (admission/charging.h), where a
// switch to it takes so long.
float slice_share(Segment& segment, int index, int gpu, uint64_t switch_ns);
// Of the tenants that use this GPU, in thousandths: their floors together, and the weights of the production jobs.
struct Promised {
    uint32_t floors, weights;
};
Promised promised_on(Segment& segment, int gpu);
// Whether a tenant lets lower classes run beside it now.
bool is_tolerant(const Slot& slot, int gpu);
// Whether everybody above that uses the GPU does.
bool is_above_tolerant(Segment& segment, int index, int gpu);
// Whether a tenant of a higher class has work and does not tolerate overlap.
bool is_above_busy(Segment& segment, int index, int gpu);
// How a tenant stands on a GPU, for admission::may_run.
admission::Standing standing(Segment& segment, int index, int gpu);

// The edge from idle to busy: sets busy, with a fresh heartbeat, then closes the gates of the lower classes. A tenant
// that passes gates takes the turn if it is free; one that is about to copy wants none. `how`: a value of Ready.
void go_busy(Segment& segment, int index, int gpu, uint32_t how = ready);
// The edge from busy to idle of an owner that no longer launches: opens the gates that it kept closed.
void go_idle(Segment& segment, int index, int gpu);
// Closes the gates of the tenants that wait for this one; it has set its own `busy` before.
void close_gates_below(Segment& segment, int index, int gpu);
// A busy tenant puts a copy of admission::kBusCopy or more into a stream: closes the gates for copies of the tenants
// that wait for it. The second: none is left in its streams.
void begin_copying(Segment& segment, int index, int gpu);
void end_copying(Segment& segment, int index, int gpu);
// Whether a higher class is copying: one that this tenant waits for.
bool is_above_copying(Segment& segment, int index, int gpu);
bool may_copy(Segment& segment, int index, int gpu);
// Recomputes the gates of this class and of lower classes (of all, where classes do not matter). `ran_ns`: when the
// tenant that passes its turn on was last seen running; 0: none does.
void refresh_gates(Segment& segment, uint32_t tenant_class, int gpu, uint64_t ran_ns = 0);
// Recomputes both gates of a tenant. Returns whether the tenant may go on.
bool refresh_gate(Segment& segment, int index, int gpu, uint64_t ran_ns = 0);

// The following are for tenants that pass gates. The tenant has work again, and is about to launch it: takes the turn
// if it is free.
void go_ready(Segment& segment, int index, int gpu, uint32_t how = ready);
// The tenant's streams have run empty, and it no longer launches: gives its turn away.
void go_empty(Segment& segment, int index, int gpu, uint64_t ran_ns);
// The same, where others are ready: the tenant has no claim to what it did not use, and one of the others goes next. It
// may be on until its gate has been closed for a moment: then leave_gpu.
void forgo_turn(Segment& segment, int index, int gpu);
// The tenant's gate has had this value, closed, for so long that its streams stand: the next tenant may start.
void leave_gpu(Segment& segment, int index, int gpu, uint32_t gate, uint64_t ran_ns);
// The tenant's turn, or its time beside another's, is over, and it has work left, however briefly it wanted the GPU.
void end_turn(Segment& segment, int index, int gpu);
// Whether the work of one of its equals may be on the GPU, stopped or not.
bool is_equal_on(Segment& segment, int index, int gpu);
struct ReadyEquals {
    uint32_t count;                             // with itself; 0: no other is ready
    uint64_t brief_ns = admission::kNotBrief;   // the least of the others
    uint64_t least_key_ns = admission::kNoKey;  // likewise
    bool any_beside = false;                    // another runs beside them
};
ReadyEquals ready_equals(Segment& segment, int index, int gpu);
// Brings a tenant's turn key to those of its equals that have work (admission/turn_keys.h).
void catch_up(Segment& segment, int index, int gpu);
// GPU time that was charged to its equals beside the holder of a turn, ever.
uint64_t used_beside_ns(Segment& segment, int index, int gpu);
// Charges GPU time to a tenant, and to its turn key what it owes for that.
void charge(Segment& segment, int index, int gpu, uint64_t used_ns, uint64_t owed_ns);

}  // namespace wire
