// Exercises the gates for long copies without CUDA; each case ends with status 0 or says what was wrong.
//   copy_gates SEGMENT copies   long copies wait for a higher class that copies, for no other, and for no turn
//   copy_gates SEGMENT copiers  one that copies has no part in turns
#include "../require.h"
#include "admission/turns.h"
#include "cases.h"
#include "tenants.h"

namespace {

void copies(wire::Segment& segment) {
    int low = busy_tenant(segment, wire::opportunistic), equal = busy_tenant(segment, wire::opportunistic);
    wire::OnGpu& low_on = segment.slot(low).gpus[0];
    REQUIRE(is_open(segment, low) != is_open(segment, equal));
    REQUIRE(may_copy(segment, low) && may_copy(segment, equal));
    // A higher class at work holds back kernels; one that copies holds back copies, too.
    int high = busy_tenant(segment, wire::production);
    wire::OnGpu& high_on = segment.slot(high).gpus[0];
    REQUIRE(!is_open(segment, low) && !is_open(segment, equal));
    REQUIRE(may_copy(segment, low) && may_copy(segment, equal));
    wire::begin_copying(segment, high, 0);
    REQUIRE(!may_copy(segment, low) && !may_copy(segment, equal) && wire::has_work(segment, high, 0));
    // What comes into the segment meanwhile finds its gate closed, and the higher class stays what it is.
    int late = busy_tenant(segment, wire::opportunistic);
    REQUIRE(!may_copy(segment, late));
    wire::go_busy(segment, high, 0);
    REQUIRE(!may_copy(segment, low) && high_on.busy.load() == wire::copying);
    // One that was stopped for long lets copies pass until it goes on.
    segment.slot(high).heartbeat_ns.store(wire::now_ns() - 100ull * 1000000000);
    wire::refresh_gate(segment, low, 0);
    REQUIRE(may_copy(segment, low));
    wire::go_busy(segment, high, 0);
    REQUIRE(!may_copy(segment, low) && !may_copy(segment, equal));
    wire::end_copying(segment, high, 0);
    REQUIRE(may_copy(segment, low) && may_copy(segment, late) && !is_open(segment, low));
    REQUIRE(high_on.busy.load() == wire::busy);
    wire::begin_copying(segment, high, 0);
    wire::go_idle(segment, high, 0);
    REQUIRE(may_copy(segment, low));
    // An idle tenant does not copy.
    wire::begin_copying(segment, high, 0);
    REQUIRE(high_on.busy.load() == wire::idle && may_copy(segment, low));
    auto copies_now = [&] {
        wire::refresh_gate(segment, low, 0);
        return may_copy(segment, low);
    };
    low_on.shut_until_ns.store(wire::now_ns() + 50ull * 1000000000);
    REQUIRE(!copies_now());
    low_on.shut_until_ns.store(0);
    low_on.over_rate.store(1);
    REQUIRE(!copies_now());
    low_on.below_floor.store(1);
    REQUIRE(copies_now());
    low_on.over_rate.store(0);
    low_on.below_floor.store(0);
    // One that tolerates lower classes beside it does so while it copies.
    wire::go_busy(segment, high, 0);
    wire::begin_copying(segment, high, 0);
    REQUIRE(!copies_now());
    high_on.tolerant_until_ns.store(wire::now_ns() + 50ull * 1000000000);
    REQUIRE(copies_now());
}

// A tenant that is about to copy wants no turn; one that then wants the GPU briefly says so.
void copiers(wire::Segment& segment) {
    int runs = busy_tenant(segment, wire::opportunistic), copier = wire::take_slot(segment);
    wire::join_class(segment, copier, wire::opportunistic);
    never_stale(segment, copier);
    wire::go_busy(segment, copier, 0, wire::not_ready);
    wire::OnGpu& here = segment.slot(copier).gpus[0];
    REQUIRE(here.busy.load() == wire::busy && !here.ready.load() && !here.on.load());
    REQUIRE(may_copy(segment, copier) && is_open(segment, runs) && wire::ready_equals(segment, runs, 0).count == 0);
    wire::go_ready(segment, copier, 0, wire::briefly);
    wire::ReadyEquals others = wire::ready_equals(segment, runs, 0);
    REQUIRE(others.count == 2 && others.brief_ns == 0);
    REQUIRE(wire::ready_equals(segment, copier, 0).brief_ns == admission::kNotBrief);
    // Nor is it brief any more when its turn was not enough for it.
    wire::go_ready(segment, copier, 0, wire::briefly + 700);
    REQUIRE(wire::ready_equals(segment, runs, 0).brief_ns == 700000);
    wire::end_turn(segment, copier, 0);
    others = wire::ready_equals(segment, runs, 0);
    REQUIRE(others.count == 2 && others.brief_ns == admission::kNotBrief);
    wire::forgo_turn(segment, copier, 0);
    REQUIRE(wire::ready_equals(segment, runs, 0).count == 0);
}

}  // namespace

int main(int argc, char** argv) { return run_case(argc, argv, {{"copies", copies}, {"copiers", copiers}}); }
