// The events that the membership announces (listeners.h).
#pragma once

#include <cstdint>

#include "tenant/listeners.h"
#include "wire/border.h"

namespace tenant {

class Membership;

enum class MembershipStep : uint8_t {
    uncovered,
    timeline,
    leave_in_order,
    mps_health,
    detour,
    last_run,
    driver_memory,
    residence,
    mover,
    kSteps
};

// The process has a slot, which others do not see yet.
struct AtJoin {
    MembershipStep step;
    void (*act)(wire::Segment& segment, wire::Slot& slot);
};
LISTENERS(AtJoin)

// The watcher's look, every 20 to 250 ms.
struct AtLook {
    MembershipStep step;
    void (*act)(Membership& membership, uint64_t now_ns);
};
LISTENERS(AtLook)

// Somebody has asked for a change (`cotenant ctl`). By the watcher.
struct AtRequest {
    MembershipStep step;
    void (*act)(Membership& membership, const wire::Asked& asked);
};
LISTENERS(AtRequest)

// The process ends, and has its slot still.
struct AtExit {
    MembershipStep step;
    void (*act)();
};
LISTENERS(AtExit)

}  // namespace tenant
