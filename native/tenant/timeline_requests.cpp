#include "tenant/timeline_requests.h"

#include <cstdlib>

#include "tenant/amounts.h"
#include "tenant/fork.h"
#include "tenant/membership.h"
#include "tenant/membership_events.h"
#include "tenant/timeline.h"

namespace tenant::timeline {

namespace {

void begin_at_join(wire::Segment&, wire::Slot& slot) {
    slot.timeline.store(0);
    slot.asked_timeline.store(0);
    if (uint64_t bytes = parse_size(getenv("COTENANT_TIMELINE_RING"))) begin(slot, bytes >> 10);
}
LISTEN(AtJoin, MembershipStep::timeline, begin_at_join)

uint32_t doubted = 0;

void look(Membership& membership, uint64_t now_ns) {
    wire::Slot& slot = membership.slot();
    show(slot);
    uint32_t asked = slot.asked_timeline.load();
    if (!asked) return;
    if (slot.asked_timeline_check.load() != wire::check_of(asked)) {
        // Somebody may be about to write the check word.
        bool again = asked == doubted;
        doubted = asked;
        if (again) slot.asked_timeline.compare_exchange_strong(asked, 0);
        return;
    }
    if (!slot.asked_timeline.compare_exchange_strong(asked, 0)) return;  // somebody has just asked for something else
    if (asked > 1) {
        if (!is_on()) Membership::for_each([](Membership& one) { note_launched(one.slot(), one.terms.lane); });
        begin(slot, asked - 1);
    } else {
        end_recording(membership, now_ns);
    }
}
LISTEN(AtLook, MembershipStep::timeline, look)

LISTEN(AtFork, ForkStep::timeline, forget_in_child)

}  // namespace

void end_recording(Membership& membership, uint64_t now_ns) {
    if (!is_on()) return;
    wire::Slot& slot = membership.slot();
    auto end_bursts = [now_ns](Membership& one) {
        for (int gpu = 0; gpu < wire::kGpus; ++gpu)
            if (one.slot().gpus[gpu].busy.load())
                saw_burst(one.slot(), gpu, one.burst_began_ns(gpu), now_ns, one.terms.lane);
    };
    // At its end a process has left `Membership::for_each` already.
    end_bursts(membership);
    Membership::for_each([&](Membership& one) {
        if (&one != &membership) end_bursts(one);
    });
    const wire::Slot::Residence& memory = slot.residence;
    if (memory.where.load() == wire::evicted)
        note(Event::evicted, kNoGpu, memory.since_ns.load(), now_ns, slot.host_bytes.load());
    finish(slot, now_ns);
}

}  // namespace tenant::timeline
