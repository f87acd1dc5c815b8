// For test programs: a membership that has joined no segment by itself.
#pragma once

#include "tenant/membership.h"

namespace tenant {

struct MembershipInside {
    static void give_slot(Membership& membership, wire::Slot& slot, wire::Segment* segment = nullptr) {
        membership.slot_ = &slot;
        membership.segment_ = segment;
    }
    // As the lane with this number, counted from 0, which is open.
    static void join_lane(uint32_t number, Membership& membership) {
        membership.lane_ = &Membership::lanes_[number].terms;
        Membership::lanes_[number].joined.store(&membership);
    }
    static void refuse_lane(uint32_t number) { Membership::lanes_[number].refused.store(true); }
};

}  // namespace tenant
