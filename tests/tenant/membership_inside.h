// For test programs: a membership that has joined no segment by itself.
#pragma once

#include "tenant/membership.h"

namespace tenant {

struct MembershipInside {
    static void give_slot(Membership& membership, wire::Slot& slot) { membership.slot_ = &slot; }
};

}  // namespace tenant
