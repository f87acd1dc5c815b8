// Exercises what tenants see of each other's time slices and floors, without CUDA; each case ends with status 0 or says
// what was wrong.
//   slices SEGMENT shares    whose time slices count beside a tenant's own
//   slices SEGMENT below     who of a lower class is on the GPU
//   slices SEGMENT floors    who is below a floor
//   slices SEGMENT above     whether a higher class has worked since it was last asked
#include <cmath>

#include "../require.h"
#include "cases.h"
#include "tenants.h"

namespace {

void shares(wire::Segment& segment) {
    int self = busy_tenant(segment, wire::opportunistic), top = busy_tenant(segment, wire::production);
    int equal = busy_tenant(segment, wire::opportunistic);
    auto set = [&](int slot, uint32_t us) { segment.slot(slot).time_slice_us.store(us); };
    auto share_is = [&](double share) { return std::abs(wire::slice_share(segment, self, 0, 0) - share) < 1e-6; };
    set(self, 3000), set(top, 2000), set(equal, 5000);
    segment.slot(equal).gpus[0].on.store(0);
    REQUIRE(share_is(0.6) && wire::slice_share(segment, self, 0, 1000000) == 0.4f);
    REQUIRE(wire::slice_share(segment, self, 0, 4000000) == 0);
    segment.slot(equal).gpus[0].on.store(1);
    REQUIRE(share_is(0.3));
    // Production that tolerates others, or has no work, leaves them the GPU.
    segment.slot(top).gpus[0].tolerant_until_ns.store(wire::now_ns() + 50ull * 1000000000);
    REQUIRE(share_is(0.375));
    segment.slot(top).gpus[0].tolerant_until_ns.store(0);
    wire::go_idle(segment, top, 0);
    REQUIRE(share_is(0.375));
    // Of one whose slice is not known it is the driver's.
    set(equal, 0), set(self, 2048);
    REQUIRE(share_is(0.5));
    set(equal, UINT32_MAX), set(self, UINT32_MAX);
    REQUIRE(share_is(0.5));
    // A lane is on the GPU with others of its process, a client of MPS with other clients, and no slice says how.
    set(equal, 30);
    segment.slot(self).lane.store(1);
    REQUIRE(wire::slice_share(segment, self, 0, 1000000) == 0.5f);
    segment.slot(self).lane.store(0);
    segment.slot(self).mps_daemon.store(7);
    REQUIRE(wire::slice_share(segment, self, 0, 1000000) == 0.5f);
    segment.slot(self).mps_daemon.store(0);
    // Alone on the GPU there is nobody to switch from.
    segment.slot(equal).gpus[0].on.store(0);
    REQUIRE(wire::slice_share(segment, self, 0, 1000000) == 1);
}

void below(wire::Segment& segment) {
    int self = busy_tenant(segment, wire::opportunistic), above = busy_tenant(segment, wire::standard);
    wire::OnGpu& here = segment.slot(self).gpus[0];
    REQUIRE(here.on.load() && wire::is_below_on(segment, above, 0));
    REQUIRE(!wire::is_below_on(segment, self, 0) && !wire::is_below_on(segment, above, 1));
    here.on.store(0);
    REQUIRE(!wire::is_below_on(segment, above, 0));
    here.on.store(1);
    wire::go_idle(segment, self, 0);
    REQUIRE(!wire::is_below_on(segment, above, 0));
}

// One that is let through for another reason is below no floor, and one without work waits for none.
void floors(wire::Segment& segment) {
    int self = busy_tenant(segment, wire::opportunistic);
    segment.slot(self).gpus[0].below_floor.store(1);
    REQUIRE(!wire::is_any_below_floor(segment, 0));
    segment.slot(self).floor.store(100);
    REQUIRE(wire::is_any_below_floor(segment, 0) && !wire::is_any_below_floor(segment, 1));
    wire::go_idle(segment, self, 0);
    REQUIRE(!wire::is_any_below_floor(segment, 0));
}

// A burst between two looks is seen by its count.
void above(wire::Segment& segment) {
    int self = busy_tenant(segment, wire::standard), top = busy_tenant(segment, wire::production);
    busy_tenant(segment, wire::opportunistic);
    uint64_t bursts = 0;
    segment.slot(top).gpus[0].figures.bursts.store(1);
    REQUIRE(wire::worked_above(segment, self, 0, bursts) && wire::worked_above(segment, self, 0, bursts));
    wire::go_idle(segment, top, 0);
    wire::worked_above(segment, self, 0, bursts);
    REQUIRE(!wire::worked_above(segment, self, 0, bursts));
    segment.slot(top).gpus[0].figures.bursts.fetch_add(1);
    REQUIRE(wire::worked_above(segment, self, 0, bursts) && !wire::worked_above(segment, self, 0, bursts));
    uint64_t none = 0;
    REQUIRE(!wire::worked_above(segment, top, 0, none) && none == 0);
}

}  // namespace

int main(int argc, char** argv) {
    return run_case(argc, argv, {{"shares", shares}, {"below", below}, {"floors", floors}, {"above", above}});
}
