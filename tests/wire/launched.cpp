//   launched SEGMENT sums   what tenants say of what they have launched is summed, and garbage does no harm
#include "wire/launched.h"

#include <initializer_list>

#include "../require.h"
#include "cases.h"
#include "tenants.h"

namespace {

void sums(wire::Segment& segment) {
    int above = busy_tenant(segment, wire::production), below = busy_tenant(segment, wire::opportunistic);
    wire::Slot::Launched& there = segment.slot(above).launched[0];
    uint64_t now = wire::now_ns();
    there.operations.store(2);
    there.sms.store(3);
    there.ends_ns.store(now + 5000000);
    segment.slot(below).launched[0].sms.store(4);
    wire::Sides sides = wire::sides_of(segment, below, 0, now);
    REQUIRE(sides.production.running == 2 && sides.production.sms == 3 && sides.production.left_us == 5000);
    REQUIRE(sides.production.with_work == 1 && sides.below.with_work == 1 && sides.below.sms == 4);
    // The kernel that production launched last, whichever of its jobs did, and whatever lower classes launch.
    int also = busy_tenant(segment, wire::production);
    there.bound.store(1);
    there.launched_ns.store(now - 1000);
    for (uint64_t launched_ns : {now - 2000, now - 500}) {
        segment.slot(also).launched[0].bound.store(2);
        segment.slot(also).launched[0].launched_ns.store(launched_ns);
        segment.slot(below).launched[0].launched_ns.store(now);
        auto bound = launched_ns > now - 1000 ? admission::Bound::memory : admission::Bound::compute;
        REQUIRE(wire::sides_of(segment, below, 0, now).production.bound == bound);
    }
    wire::leave_slot(segment, also);
    // Its own counts also without work, that of another does not.
    wire::go_idle(segment, above, 0);
    wire::go_idle(segment, below, 0);
    sides = wire::sides_of(segment, below, 0, now);
    REQUIRE(sides.production.with_work == 0 && sides.production.sms == 0 && sides.below.sms == 4);
    wire::go_busy(segment, above, 0);
    for (wire::Flag* word : {&there.operations, &there.sms, &there.outstanding_us, &there.bound})
        word->store(UINT32_MAX);
    for (uint64_t ends_ns : {now - 1, now + 60000000000, UINT64_MAX}) {
        there.ends_ns.store(ends_ns);
        admission::Side seen = wire::sides_of(segment, below, 0, now).production;
        REQUIRE(seen.left_us == (ends_ns < now ? 0 : wire::kLongestLeftNs / 1000));
        REQUIRE(seen.running < 1000000 && seen.sms < 1e6 && seen.outstanding_us < 2e9);
        REQUIRE(seen.bound <= admission::Bound::memory);
    }
}

}  // namespace

int main(int argc, char** argv) { return run_case(argc, argv, {{"sums", sums}}); }
