// Exercises gates and turns without CUDA; each case ends with status 0 or says what was wrong.
//   gates SEGMENT leave      a tenant that leaves behind a closed gate leaves it open
//   gates SEGMENT stopped    a busy tenant without a heartbeat holds nobody back
//   gates SEGMENT turns      equals take turns by weight
//   gates SEGMENT emptied    the turn of one that has run empty goes on at once, and without a turn nothing changes
//   gates SEGMENT steered    what a controller sets opens and closes gates
//   gates SEGMENT besides    one that runs beside the holder of the turn takes none
//   gates SEGMENT leaving    the gate of a tenant that must be evicted is open
//   gates SEGMENT waits      waits at a closed gate, and closings amid work, are counted
//   gates SEGMENT bystanders who counts of the others
//   gates SEGMENT race       many tenants go busy and idle at once; then gates and busy flags must agree
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "../require.h"
#include "admission/admission.h"
#include "admission/turn_keys.h"
#include "cases.h"
#include "tenants.h"
#include "wire/waiting.h"

namespace {

// A millisecond passes: who is let through is charged, and ends its turn when it is long enough; then every watcher
// looks at its gate. What is stopped has left the GPU a millisecond later.
void pass_a_millisecond(wire::Segment& segment, const std::vector<int>& slots) {
    constexpr int kTurnMs = 20;
    static int executed_ms[wire::kSlots] = {};
    for (int slot : slots) {
        wire::OnGpu& here = segment.slot(slot).gpus[0];
        if (is_open(segment, slot) && here.busy.load()) {
            wire::charge(segment, slot, 0, 1000000, 1000000);
            if (++executed_ms[slot] % kTurnMs == 0 && wire::ready_equals(segment, slot, 0).count)
                here.holds_turn.store(0);
        } else if (!is_open(segment, slot) && here.on.load()) {
            wire::leave_gpu(segment, slot, 0, here.gate.load(), 0);
        }
    }
    wire::refresh_gates(segment, wire::production, 0);
}

// As its watcher says when it has found its streams standing at the closed gate.
void drain(wire::Segment& segment, int slot) {
    wire::leave_gpu(segment, slot, 0, segment.slot(slot).gpus[0].gate.load(), 0);
}

double used_ms(wire::Segment& segment, int slot) { return segment.slot(slot).gpus[0].used_ns.load() / 1e6; }

void turns(wire::Segment& segment) {
    int heavy = busy_tenant(segment, wire::opportunistic, 3000), light = busy_tenant(segment, wire::opportunistic);
    int changes = 0;
    for (int ms = 0, last = -1; ms < 2000; ++ms) {
        bool heavy_on = segment.slot(heavy).gpus[0].on.load(), light_on = segment.slot(light).gpus[0].on.load();
        REQUIRE(heavy_on != light_on);  // one at a time, and always one
        int now = heavy_on ? heavy : light;
        changes += now != last;
        last = now;
        pass_a_millisecond(segment, {heavy, light});
    }
    REQUIRE(used_ms(segment, heavy) > 1440 && used_ms(segment, heavy) < 1560);
    REQUIRE(changes > 20 && changes < 80);  // turns, not a flutter

    // One that was idle for long comes back without a claim to the past, and shares from then on.
    wire::go_idle(segment, light, 0);
    for (int ms = 0; ms < 500; ++ms) pass_a_millisecond(segment, {heavy, light});
    double heavy_before = used_ms(segment, heavy), light_before = used_ms(segment, light);
    wire::go_busy(segment, light, 0);
    never_stale(segment, light);
    for (int ms = 0; ms < 400; ++ms) pass_a_millisecond(segment, {heavy, light});
    double heavy_got = used_ms(segment, heavy) - heavy_before, light_got = used_ms(segment, light) - light_before;
    REQUIRE(light_got > 60 && light_got < 140 && heavy_got > 260);

    // One that had the GPU to itself for long comes back with a debt of a turn at most.
    wire::go_idle(segment, heavy, 0);
    for (int ms = 0; ms < 500; ++ms) pass_a_millisecond(segment, {heavy, light});
    wire::go_idle(segment, light, 0);
    light_before = used_ms(segment, light);
    for (int slot : {heavy, light}) {
        wire::go_busy(segment, slot, 0);
        never_stale(segment, slot);
    }
    for (int ms = 0; ms < 400; ++ms) pass_a_millisecond(segment, {heavy, light});
    light_got = used_ms(segment, light) - light_before;
    REQUIRE(light_got > 60 && light_got < 140);

    // A class above goes first, whatever was used; then turns go on.
    int above = busy_tenant(segment, wire::standard);
    REQUIRE(!is_open(segment, heavy) && !is_open(segment, light) && is_open(segment, above));
    wire::go_idle(segment, above, 0);
    REQUIRE(is_open(segment, heavy) != is_open(segment, light));

    // One that is shut or over its rate keeps no turn from the other.
    for (bool shut : {true, false}) {
        int next = is_open(segment, heavy) ? heavy : light, waiting = heavy + light - next;
        wire::OnGpu& barred = segment.slot(next).gpus[0];
        barred.shut_until_ns.store(shut ? wire::now_ns() + 50ull * 1000000000 : 0);
        barred.over_rate.store(!shut);
        segment.slot(waiting).gpus[0].turn_key.store(barred.turn_key.load() + 1000000000);  // far behind in the order
        REQUIRE(!wire::refresh_gate(segment, next, 0) && !barred.holds_turn.load());
        REQUIRE(!wire::refresh_gate(segment, waiting, 0));  // what the other has started is still there
        drain(segment, next);
        REQUIRE(is_open(segment, waiting));
        // Below its floor it runs all the same, beside whoever has the turn.
        barred.below_floor.store(1);
        REQUIRE(wire::refresh_gate(segment, next, 0) && wire::refresh_gate(segment, waiting, 0));
        barred.below_floor.store(0);
        barred.shut_until_ns.store(0);
        barred.over_rate.store(0);
        REQUIRE(!wire::refresh_gate(segment, next, 0) && is_open(segment, waiting));
        drain(segment, next);
        segment.slot(waiting).gpus[0].holds_turn.store(0);
        wire::refresh_gate(segment, waiting, 0);
        drain(segment, waiting);
        REQUIRE(is_open(segment, next) && !is_open(segment, waiting));
    }

    // One that runs empty passes the turn, though it has executed less, and takes it back only after the other.
    int first = is_open(segment, heavy) ? heavy : light, second = heavy + light - first;
    segment.slot(second).gpus[0].turn_key.store(segment.slot(first).gpus[0].turn_key.load() + 1000000000);
    wire::forgo_turn(segment, first, 0);
    wire::go_ready(segment, first, 0);  // it launches again at once
    REQUIRE(!is_open(segment, first) && !is_open(segment, second));
    drain(segment, first);
    REQUIRE(is_open(segment, second) && !is_open(segment, first));
    wire::forgo_turn(segment, second, 0);
    wire::refresh_gate(segment, second, 0);
    drain(segment, second);
    REQUIRE(is_open(segment, first) && !is_open(segment, second));
    wire::go_ready(segment, second, 0);
    REQUIRE(is_open(segment, first) && !is_open(segment, second));

    // The turn outlives a burst of a class above, though the other has executed less.
    segment.slot(second).gpus[0].turn_key.store(0);
    wire::go_busy(segment, above, 0);
    never_stale(segment, above);
    drain(segment, first);
    REQUIRE(!is_open(segment, first) && !is_open(segment, second));
    wire::go_idle(segment, above, 0);
    REQUIRE(is_open(segment, first) && !is_open(segment, second));

    // One that does not drain is passed after a while.
    segment.slot(first).gpus[0].holds_turn.store(0);
    wire::refresh_gates(segment, wire::opportunistic, 0);
    REQUIRE(!is_open(segment, first) && !is_open(segment, second));
    uint64_t since = wire::now_ns();
    segment.slot(first).gpus[0].stop_ns.store(since);
    bool is_passed = wire::refresh_gate(segment, second, 0);
    REQUIRE(!is_passed || wire::now_ns() - since >= admission::kDrainNs);
    segment.slot(first).gpus[0].stop_ns.store(wire::now_ns() - admission::kDrainNs - 1);
    wire::refresh_gate(segment, second, 0);
    REQUIRE(is_open(segment, second) && !is_open(segment, first));
    drain(segment, first);

    // One that has executed much while the others were idle is not made to wait for it: neither by those who come
    // while it rests, nor by those who come while nobody has work.
    for (int slot : {first, second}) wire::go_idle(segment, slot, 0);
    segment.slot(first).gpus[0].figures.bursts.store(1);
    segment.slot(first).gpus[0].turn_key.store(segment.slot(second).gpus[0].turn_key.load() + 5000000000);
    for (int slot : {second, first}) {
        wire::go_busy(segment, slot, 0);
        never_stale(segment, slot);
    }
    double before = used_ms(segment, first);
    for (int ms = 0; ms < 300; ++ms) pass_a_millisecond(segment, {heavy, light});
    REQUIRE(used_ms(segment, first) > before + 20);

    // The one that has the turn stands still: the other goes on.
    int holder = is_open(segment, heavy) ? heavy : light, other = heavy + light - holder;
    segment.slot(holder).heartbeat_ns.store(wire::now_ns() - 100ull * 1000000000);
    wire::refresh_gate(segment, other, 0);
    REQUIRE(is_open(segment, other));
}

void steered(wire::Segment& segment) {
    int high = busy_tenant(segment, wire::production), low = busy_tenant(segment, wire::opportunistic);
    wire::OnGpu &low_on = segment.slot(low).gpus[0], &high_on = segment.slot(high).gpus[0];
    auto opens = [&] { return wire::refresh_gate(segment, low, 0); };
    uint64_t later = wire::now_ns() + 50ull * 1000000000, past = 1;
    REQUIRE(!opens());
    high_on.tolerant_until_ns.store(later);
    REQUIRE(opens());
    wire::go_busy(segment, high, 0);  // a tolerant tenant's burst closes nothing
    REQUIRE(is_open(segment, low));
    high_on.tolerant_until_ns.store(past);
    REQUIRE(!opens());
    low_on.below_floor.store(1);
    REQUIRE(opens());
    low_on.below_floor.store(0);
    wire::go_idle(segment, high, 0);
    REQUIRE(opens());
    low_on.shut_until_ns.store(later);
    REQUIRE(!opens());
    low_on.shut_until_ns.store(past);  // the daemon that shut it is gone
    REQUIRE(opens());
    low_on.over_rate.store(1);
    REQUIRE(!opens());
    low_on.over_rate.store(0);

    // fair: turns among all, whatever the class; none: everybody.
    segment.header.knobs.rule.store(admission::fair);
    wire::go_busy(segment, high, 0);
    never_stale(segment, high);
    for (int ms = 0; ms < 1000; ++ms) pass_a_millisecond(segment, {high, low});
    REQUIRE(used_ms(segment, high) > 450 && used_ms(segment, low) > 450);
    // One that has no more work lets the next go on at once, also one of a class above.
    high_on.turn_key.store(low_on.turn_key.load() + 1000000000);
    high_on.holds_turn.store(0);
    wire::refresh_gates(segment, wire::production, 0);
    if (high_on.on.load()) drain(segment, high);
    REQUIRE(is_open(segment, low) && !is_open(segment, high));
    wire::go_idle(segment, low, 0);
    REQUIRE(is_open(segment, high));
    segment.header.knobs.rule.store(admission::none);
    REQUIRE(opens() && wire::refresh_gate(segment, high, 0));
}

void stopped(wire::Segment& segment) {
    int low = wire::take_slot(segment), high = wire::take_slot(segment);
    wire::join_class(segment, low, wire::opportunistic);
    wire::join_class(segment, high, wire::production);
    wire::go_busy(segment, high, 0);
    REQUIRE(segment.slot(low).gpus[0].gate.load() != wire::kGateOpen);
    never_stale(segment, high);
    wire::refresh_gate(segment, low, 0);
    REQUIRE(segment.slot(low).gpus[0].gate.load() != wire::kGateOpen);
    segment.slot(high).heartbeat_ns.store(wire::now_ns() - 100ull * 1000000000);
    wire::refresh_gate(segment, low, 0);
    REQUIRE(segment.slot(low).gpus[0].gate.load() == wire::kGateOpen);
    wire::go_busy(segment, high, 0);
    REQUIRE(segment.slot(low).gpus[0].gate.load() != wire::kGateOpen);
}

void leave(wire::Segment& segment) {
    int low = wire::take_slot(segment), high = wire::take_slot(segment);
    wire::join_class(segment, low, wire::opportunistic);
    wire::join_class(segment, high, wire::production);
    never_stale(segment, high);
    wire::go_busy(segment, high, 3);
    REQUIRE(segment.slot(low).gpus[3].gate.load() != wire::kGateOpen);
    REQUIRE(segment.slot(low).gpus[2].gate.load() == wire::kGateOpen);
    wire::leave_slot(segment, low);
    REQUIRE(segment.slot(low).gpus[3].gate.load() == wire::kGateOpen);
    // A neighbour that is still looking at it leaves it open, whatever the rule.
    for (auto rule : {admission::fair, admission::strict}) {
        segment.header.knobs.rule = rule;
        wire::go_ready(segment, high, 3);
        REQUIRE(wire::refresh_gate(segment, low, 3) && segment.slot(low).gpus[3].gate.load() == wire::kGateOpen);
    }
    // A newcomer finds it closed again.
    int next = wire::take_slot(segment);
    wire::join_class(segment, next, wire::standard);
    REQUIRE(segment.slot(next).gpus[3].gate.load() != wire::kGateOpen);
    // Whoever is closed out by one that leaves is let in, on each of its GPUs.
    wire::go_busy(segment, high, 0);
    REQUIRE(!is_open(segment, next));
    wire::leave_slot(segment, high);
    REQUIRE(segment.slot(next).gpus[3].gate.load() == wire::kGateOpen && is_open(segment, next));
}

// One that runs beside the holder of the turn takes none, and nobody waits for it. Then it waits like any other.
void besides(wire::Segment& segment) {
    int holder = busy_tenant(segment, wire::opportunistic), other = busy_tenant(segment, wire::opportunistic);
    REQUIRE(is_open(segment, holder) && !is_open(segment, other));
    wire::OnGpu& here = segment.slot(other).gpus[0];
    wire::forgo_turn(segment, other, 0);
    wire::go_ready(segment, other, 0, wire::beside);
    REQUIRE(is_open(segment, other) && is_open(segment, holder) && here.on.load() && !here.holds_turn.load());
    wire::ReadyEquals seen = wire::ready_equals(segment, holder, 0);
    REQUIRE(seen.count == 0 && seen.any_beside && seen.brief_ns == admission::kNotBrief);
    seen = wire::ready_equals(segment, other, 0);
    REQUIRE(seen.count == 2 && !seen.any_beside);
    REQUIRE(seen.least_key_ns == segment.slot(holder).gpus[0].turn_key.load());
    REQUIRE(wire::slice_share(segment, holder, 0, 0) == 1 && wire::slice_share(segment, other, 0, 0) < 1);
    uint64_t used = here.used_ns.load();
    wire::charge(segment, other, 0, 3000, 3000);
    REQUIRE(here.used_ns.load() == used + 3000 && wire::used_beside_ns(segment, holder, 0) == 3000);
    REQUIRE(wire::used_beside_ns(segment, other, 0) == 0);
    int third = busy_tenant(segment, wire::opportunistic);
    wire::go_idle(segment, holder, 0);  // the next one starts, whoever is beside
    REQUIRE(is_open(segment, third) && segment.slot(third).gpus[0].holds_turn.load() && is_open(segment, other));
    wire::end_turn(segment, other, 0);
    REQUIRE(!wire::refresh_gate(segment, other, 0) && !is_open(segment, other) && here.ready.load() == wire::ready);
    wire::charge(segment, other, 0, 3000, 3000);
    REQUIRE(wire::used_beside_ns(segment, holder, 0) == 3000);
    for (int slot : {holder, other, third}) wire::leave_slot(segment, slot);
}

void race(wire::Segment& segment) {
    segment.header.knobs.stale_ms.store(60000);  // whichever of the threads is held up
    std::atomic<int> ready{0};
    std::atomic<bool> stop{false};
    std::mutex coming_and_going;  // a process takes and leaves a segment's slots one at a time
    std::vector<std::thread> threads;
    std::vector<int> slots(6);
    for (int t = 0; t < 6; ++t) {
        threads.emplace_back([&, t] {
            {
                std::lock_guard alone(coming_and_going);
                slots[t] = wire::take_slot(segment);
            }
            auto tenant_class = static_cast<wire::Class>(t % 3);
            wire::join_class(segment, slots[t], tenant_class);
            ++ready;
            while (ready.load() < 6) usleep(100);
            unsigned seed = t;
            for (int i = 0; i < 20000; ++i) {
                wire::go_busy(segment, slots[t], 0);
                if (rand_r(&seed) % 2) wire::begin_copying(segment, slots[t], 0);
                if (rand_r(&seed) % 2) wire::end_copying(segment, slots[t], 0);
                if (rand_r(&seed) % 4 || i < 19990) wire::go_idle(segment, slots[t], 0);
            }
            ++ready;
            while (!stop.load()) usleep(100);
            std::lock_guard alone(coming_and_going);
            wire::leave_slot(segment, slots[t]);
        });
    }
    while (ready.load() < 12) usleep(100);
    for (int t = 0; t < 6; ++t) {
        // An equal that takes the turn closes no gate of one without work, which looks at its own before it has some.
        bool goes = admission::may_run(admission::strict, wire::standing(segment, slots[t], 0));
        bool looks = segment.slot(slots[t]).gpus[0].ready.load();
        REQUIRE(looks ? goes == is_open(segment, slots[t])
                      : !is_open(segment, slots[t]) || !wire::is_above_busy(segment, slots[t], 0));
        REQUIRE(wire::may_copy(segment, slots[t], 0) == may_copy(segment, slots[t]));
    }
    stop.store(true);
    for (auto& thread : threads) thread.join();
    REQUIRE(live(segment) == 0);
}

void leaving(wire::Segment& segment) {
    int high = busy_tenant(segment, wire::production), low = busy_tenant(segment, wire::opportunistic);
    REQUIRE(high >= 0 && !wire::refresh_gate(segment, low, 0));
    for (wire::Where where : {wire::resident, wire::evicting, wire::evicted, wire::restoring}) {
        segment.slot(low).residence.where.store(where);
        REQUIRE(wire::refresh_gate(segment, low, 0) == (where == wire::evicting));
    }
}

// Nobody looks at the gates but the one that has run empty.
void emptied(wire::Segment& segment) {
    int one = busy_tenant(segment, wire::opportunistic);
    wire::go_idle(segment, one, 0);
    REQUIRE(!segment.slot(one).gpus[0].holds_turn.load());
    wire::go_busy(segment, one, 0);
    int other = busy_tenant(segment, wire::opportunistic);
    int first = is_open(segment, one) ? one : other, second = one + other - first;
    REQUIRE(is_open(segment, first) && !is_open(segment, second));
    wire::go_empty(segment, second, 0, 0);
    REQUIRE(is_open(segment, first) && !is_open(segment, second));
    wire::go_ready(segment, second, 0);
    REQUIRE(is_open(segment, first) && !is_open(segment, second));
    // When the next one's turn begins is known from the one before, and stays when gates are looked at again.
    wire::OnGpu &was = segment.slot(first).gpus[0], &is = segment.slot(second).gpus[0];
    was.stop_ns.store(1);
    wire::go_empty(segment, first, 0, 777);
    REQUIRE(is_open(segment, second) && is.on.load() && is.holds_turn.load() && is.switch_ns.load() == 777);
    wire::refresh_gate(segment, second, 0, 888);
    REQUIRE(is.switch_ns.load() == 777);
    REQUIRE(!was.on.load() && !was.ready.load() && !was.holds_turn.load() && !was.stop_ns.load());
    wire::go_ready(segment, first, 0);
    is.stop_ns.store(1);
    wire::go_idle(segment, second, 0);
    REQUIRE(is_open(segment, first) && was.switch_ns.load() == 0);
    REQUIRE(!is.on.load() && !is.ready.load() && !is.holds_turn.load() && !is.stop_ns.load());

    // One that has found its streams standing at a gate which was opened meanwhile is on all the same.
    wire::go_busy(segment, second, 0);
    never_stale(segment, second);
    was.holds_turn.store(0);
    was.turn_key.store(is.turn_key.load() + 1000000000);
    wire::refresh_gate(segment, first, 0);
    REQUIRE(!is_open(segment, first) && was.on.load());
    wire::leave_gpu(segment, first, 0, was.gate.load() - 2, 0);
    REQUIRE(was.on.load() && !is_open(segment, second));
    wire::leave_gpu(segment, first, 0, was.gate.load(), 555);
    REQUIRE(!was.on.load() && is_open(segment, second) && is.switch_ns.load() == 555);

    // Nobody waits for one that runs because it is below its floor.
    is.below_floor.store(1);
    is.holds_turn.store(0);
    is.turn_key.store(was.turn_key.load() + 1000000000);
    REQUIRE(is.on.load() && wire::refresh_gate(segment, first, 0));
}

// What counts of the others: those that live, use this GPU, and are of the class in question.
void bystanders(wire::Segment& segment) {
    int self = busy_tenant(segment, wire::opportunistic), equal = busy_tenant(segment, wire::opportunistic);
    int above = busy_tenant(segment, wire::standard), top = busy_tenant(segment, wire::production);
    for (int slot : {self, equal, above, top}) {
        wire::go_idle(segment, slot, 0);
        wire::OnGpu& here = segment.slot(slot).gpus[0];
        here.figures.copies.store(5);
        here.waits.store(3);
        here.waited_ns.store(7);
        segment.slot(slot).floor.store(100);
        here.on.store(1);
    }
    auto above_are = [&](uint64_t tenants) {
        wire::Waits waits = wire::waits_above(segment, self, 0);
        bool is_so = waits.count == 3 * tenants && waits.ns == 7 * tenants;
        return is_so && wire::copies_above(segment, self, 0) == 5 * tenants;
    };
    REQUIRE(above_are(0) && !wire::promised_on(segment, 0).floors);
    for (int slot : {self, equal, above, top}) segment.slot(slot).gpus[0].figures.bursts.store(1);
    segment.slot(top).weight.store(2500);
    segment.slot(equal).floor.store(UINT32_MAX);  // garbage
    wire::Promised promised = wire::promised_on(segment, 0);
    REQUIRE(above_are(2) && promised.floors == 1300 && promised.weights == 2500);
    REQUIRE(!wire::promised_on(segment, 1).floors && wire::copies_above(segment, self, 1) == 0);
    REQUIRE(wire::copies_above(segment, above, 0) == 5 && wire::copies_above(segment, top, 0) == 0);
    REQUIRE(wire::is_equal_on(segment, self, 0) && !wire::is_equal_on(segment, above, 0));
    for (int slot : {top, equal}) segment.slot(slot).owner.fetch_or(wire::kOwnerDied);
    REQUIRE(above_are(1) && !wire::is_equal_on(segment, self, 0));
    for (int slot : {top, equal}) segment.slot(slot).owner.fetch_and(~wire::kOwnerDied);

    // Who is without work has no say in when another is next, nor who does not use this GPU in how far behind it may
    // be.
    wire::Count &key = segment.slot(self).gpus[0].turn_key, &idle = segment.slot(equal).gpus[0].turn_key;
    int works = busy_tenant(segment, wire::opportunistic);
    segment.slot(works).gpus[0].figures.bursts.store(1);
    segment.slot(works).gpus[0].turn_key.store(2000000000);
    idle.store(5);
    key.store(1000000000);
    wire::catch_up(segment, self, 0);
    REQUIRE(key.load() == 2000000000);
    idle.store(9000000000);
    segment.slot(equal).gpus[0].figures.bursts.store(0);
    wire::go_ready(segment, self, 0);
    REQUIRE(key.load() == 2000000000);
    segment.slot(equal).gpus[0].figures.bursts.store(1);
    wire::go_ready(segment, self, 0);
    REQUIRE(key.load() == 9000000000 - admission::kLargestClaimNs);

    // Nobody follows a key that is larger than any can be, nor goes behind it.
    uint64_t before = key.load();
    for (uint64_t false_key : {admission::kLargestKey - 1, admission::kLargestKey, admission::kNoKey - 1}) {
        idle.store(false_key);
        wire::go_ready(segment, self, 0);
        segment.slot(works).gpus[0].turn_key.store(false_key);
        wire::catch_up(segment, self, 0);
        wire::forgo_turn(segment, self, 0);
        REQUIRE(key.load() == before);
    }
    segment.slot(works).gpus[0].turn_key.store(2000000000);

    // A turn's key is charged to those that take turns; GPU time to everybody.
    wire::charge(segment, top, 0, 1000, 1000);
    wire::charge(segment, works, 0, 1000, 500);
    wire::OnGpu &free = segment.slot(top).gpus[0], &gated = segment.slot(works).gpus[0];
    REQUIRE(free.used_ns.load() == 1000 && free.turn_key.load() == 0);
    REQUIRE(gated.used_ns.load() == 1000 && gated.turn_key.load() == 2000000500);
}

int waits_of(const wire::Slot& slot) {
    uint32_t sum = 0;
    for (const wire::Flag& count : slot.waiting[0].counts) sum += count.load();
    return static_cast<int>(sum);
}

void waits(wire::Segment& segment) {
    int low = busy_tenant(segment, wire::opportunistic);
    wire::Slot& slot = segment.slot(low);
    wire::Slot::Waiting& waiting = slot.waiting[0];
    REQUIRE(is_open(segment, low) && waits_of(slot) == 0);
    int high = busy_tenant(segment, wire::production);
    REQUIRE(waiting.preemptions.load() == 1 && waiting.since_ns.load() && waits_of(slot) == 0);
    // It waits for as long as production is busy, however often production says so.
    wire::go_busy(segment, high, 0);
    wire::refresh_gate(segment, low, 0);
    REQUIRE(waiting.preemptions.load() == 1);
    wire::go_idle(segment, high, 0);
    REQUIRE(!waiting.since_ns.load() && waits_of(slot) == 1 && waiting.sum_ns.load() > 0);
    // Who has no work is not preempted, and begins to wait when it has some.
    wire::go_empty(segment, low, 0, 0);
    wire::go_busy(segment, high, 0);
    REQUIRE(waiting.preemptions.load() == 1 && !waiting.since_ns.load());
    wire::go_ready(segment, low, 0);
    REQUIRE(waiting.since_ns.load());
    waiting.since_ns.store(1000);  // it goes on waiting
    wire::refresh_gate(segment, low, 0);
    REQUIRE(waiting.since_ns.load() == 1000);
    wire::go_idle(segment, high, 0);
    REQUIRE(waits_of(slot) == 2 && waiting.preemptions.load() == 1);
    // Nor is one without work preempted by a controller.
    wire::go_empty(segment, low, 0, 0);
    slot.gpus[0].shut_until_ns.store(wire::now_ns() + 50ull * 1000000000);
    REQUIRE(!wire::refresh_gate(segment, low, 0) && waiting.preemptions.load() == 1 && !waiting.since_ns.load());
    slot.gpus[0].shut_until_ns.store(0);
    wire::go_ready(segment, low, 0);
    // One that gives up has not waited.
    wire::go_busy(segment, high, 0);
    wire::go_empty(segment, low, 0, 0);
    wire::go_idle(segment, high, 0);
    REQUIRE(waits_of(slot) == 2 && !waiting.since_ns.load());
    // A start that lies in the future is none.
    waiting.since_ns.store(~uint64_t{0});
    wire::go_busy(segment, high, 0);
    waiting.since_ns.store(~uint64_t{0});
    wire::go_idle(segment, high, 0);
    REQUIRE(waits_of(slot) == 2);
    REQUIRE(wire::wait_bucket(0) == 0 && wire::wait_bucket(wire::kShortestWaitNs - 1) == 0);
    REQUIRE(wire::wait_bucket(wire::kShortestWaitNs) == 1 && wire::wait_bucket(2 * wire::kShortestWaitNs - 1) == 1);
    REQUIRE(wire::wait_bucket(2 * wire::kShortestWaitNs) == 2);
    REQUIRE(wire::wait_bucket(~uint64_t{0}) == wire::kWaitBuckets - 1);
    wire::leave_slot(segment, low);
    REQUIRE(waits_of(slot) == 0 && !waiting.preemptions.load());
}

}  // namespace

int main(int argc, char** argv) {
    return run_case(argc, argv,
                    {{"leave", leave},
                     {"stopped", stopped},
                     {"turns", turns},
                     {"emptied", emptied},
                     {"bystanders", bystanders},
                     {"steered", steered},
                     {"besides", besides},
                     {"leaving", leaving},
                     {"waits", waits},
                     {"race", race}});
}
