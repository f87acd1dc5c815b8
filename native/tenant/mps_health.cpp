// Whether the contexts of this process are still alive in MPS: the watcher asks the driver at each of its looks, as a
// server may end while nothing is launched, and once more when the process ends.
#include "tenant/captures.h"
#include "tenant/context.h"
#include "tenant/membership.h"
#include "tenant/membership_events.h"
#include "tenant/mps.h"

namespace tenant {

namespace {

void look_at_one_stream(Membership& membership, uint64_t) {
    if (!mps::is_here.load(std::memory_order_relaxed) || mps::fault() || !membership.try_lock()) return;
    bool asked = captures.load() != 0;  // then no stream may be asked
    membership.streams.for_each([&](StreamState& state) {
        if (asked || state.is_known_by_event()) return;
        InContext there(state.context);
        if (!there.is_there()) return;
        mps::note(driver.cuStreamQuery(state.handle));
        asked = true;
    });
    membership.unlock();
}
LISTEN(AtLook, MembershipStep::mps_health, look_at_one_stream)

void look_a_last_time() {
    if (Membership* membership = Membership::current_if_joined()) look_at_one_stream(*membership, 0);
}
LISTEN(AtExit, MembershipStep::mps_health, look_a_last_time)

}  // namespace

}  // namespace tenant
