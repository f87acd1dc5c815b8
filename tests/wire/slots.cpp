// Exercises the segment without CUDA; each case ends with status 0 or says what was wrong.
//   slots SEGMENT churn N    N processes, one after another, take a slot and are killed in it
//   slots SEGMENT crowd      all slots taken at once, one too many, and free again
//   slots SEGMENT leave      a tenant that leaves behind a closed gate leaves it open
//   slots SEGMENT faults     a process is killed between any two steps of its life in the segment
//   slots SEGMENT stops      the same, stopped instead of killed
//   slots SEGMENT stopped    a busy tenant without a heartbeat holds nobody back
//   slots SEGMENT turns      equals take turns by weight
//   slots SEGMENT steered    what a controller sets opens and closes gates
//   slots SEGMENT thread     a slot is lost with the thread that took it
//   slots SEGMENT garbage    whatever is written into slots and header, nothing crashes, and the owner mends its own
//   slots SEGMENT abandoned  what only looks live is reaped; what is alive is not
//   slots SEGMENT leaving    the gate of a tenant that must be evicted is open
//   slots SEGMENT hold       a tenant; prints a line, and ends with its input
//   slots SEGMENT race       many tenants go busy and idle at once; then gates and busy flags must agree
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <signal.h>

// Killed (or stopped) at the n-th place where that may matter.
static std::atomic<int> fault_countdown{-1};  // every thread passes the points
static int fault_signal = SIGKILL;
#define FAULT_POINT()                                    \
    do {                                                 \
        if (fault_countdown-- == 0) raise(fault_signal); \
    } while (0)
#include "../require.h"
#include "wire/attached.cpp"
#include "wire/border.cpp"
#include "wire/clock.cpp"
#include "wire/gates.cpp"
#include "wire/header.cpp"
#include "wire/identity.cpp"
#include "wire/owner.cpp"
#include "wire/segment.cpp"
#include "wire/shared_segment.cpp"

namespace {

int live(wire::Segment& segment) {
    int count = 0;
    for (int i = 0; i < wire::kSlots; ++i) count += wire::is_live(segment.slot(i));
    return count;
}

// A test may be held up for longer than a heartbeat lasts.
void never_stale(wire::Segment& segment, int slot) {
    segment.header.knobs.stale_ms.store(60000);
    segment.slot(slot).heartbeat_ns.store(wire::now_ns());
}

bool is_open(wire::Segment& segment, int slot) { return segment.slot(slot).gpus[0].gate.load() == wire::kGateOpen; }

int busy_tenant(wire::Segment& segment, wire::Class tenant_class, uint32_t weight = 1000) {
    int slot = wire::take_slot(segment);
    wire::join_class(segment, slot, tenant_class);
    segment.slot(slot).weight.store(weight);
    wire::go_busy(segment, slot, 0);
    never_stale(segment, slot);
    wire::refresh_gates(segment, tenant_class, 0);
    return slot;
}

// A millisecond passes: who is let through is charged, and ends its turn when it is long enough; then every watcher
// looks at its gate. What is stopped has left the GPU a millisecond later.
void pass_a_millisecond(wire::Segment& segment, const std::vector<int>& slots) {
    constexpr int kTurnMs = 20;
    static int executed_ms[wire::kSlots] = {};
    for (int slot : slots) {
        wire::OnGpu& here = segment.slot(slot).gpus[0];
        if (is_open(segment, slot) && here.busy.load()) {
            wire::charge(segment, slot, 0, 1000000, 1000000);
            if (++executed_ms[slot] % kTurnMs == 0 && wire::ready_equals(segment, slot, 0)) here.holds_turn.store(0);
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

void churn(wire::Segment& segment, int times) {
    int witness = wire::take_slot(segment);
    wire::join_class(segment, witness, wire::opportunistic);
    for (int i = 0; i < times; ++i) {
        pid_t child = fork();
        if (child == 0) {
            int slot = wire::take_slot(segment);
            if (slot < 0) _exit(2);
            wire::join_class(segment, slot, wire::production);
            wire::go_busy(segment, slot, 0);
            raise(SIGKILL);
        }
        int status = 0;
        REQUIRE(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
        REQUIRE(segment.slot(witness).gpus[0].gate.load() != wire::kGateOpen);
        REQUIRE(live(segment) == 1);
        // Every other one is reaped at once, the rest by whoever takes the slot next.
        if (i % 2) {
            REQUIRE(wire::reap_slots(segment) == 1);
            REQUIRE(segment.slot(witness).gpus[0].gate.load() == wire::kGateOpen);
        }
    }
    wire::reap_slots(segment);
    REQUIRE(segment.slot(witness).gpus[0].gate.load() == wire::kGateOpen);
    for (auto& word : segment.header.members[wire::production]) REQUIRE(word.load() == 0);
}

void a_life(wire::Segment& segment) {
    int slot = wire::take_slot(segment);
    wire::join_class(segment, slot, wire::production);
    wire::go_busy(segment, slot, 0);
    wire::go_idle(segment, slot, 0);
    wire::join_class(segment, slot, wire::standard);
    wire::go_busy(segment, slot, 0);
    wire::join_class(segment, slot, wire::opportunistic);
    wire::go_busy(segment, slot, 0);  // has its turn before the witness
    wire::charge(segment, slot, 0, 1000000, 1000000);
    wire::reap_slots(segment);
    wire::leave_slot(segment, slot);
}

void faults(wire::Segment& segment) {
    int witness = wire::take_slot(segment), places = 0;
    wire::join_class(segment, witness, wire::opportunistic);
    wire::go_busy(segment, witness, 0);
    never_stale(segment, witness);
    for (bool killed = true; killed; ++places) {
        // A dead slot to reap for the one that will be killed itself.
        pid_t corpse = fork();
        if (corpse == 0) {
            int slot = wire::take_slot(segment);
            wire::join_class(segment, slot, wire::production);
            wire::go_busy(segment, slot, 0);
            raise(SIGKILL);
        }
        waitpid(corpse, nullptr, 0);
        pid_t child = fork();
        if (child == 0) {
            fault_countdown = places;
            a_life(segment);
            _exit(0);
        }
        int status = 0;
        REQUIRE(waitpid(child, &status, 0) == child);
        killed = WIFSIGNALED(status);
        wire::reap_slots(segment);
        REQUIRE(live(segment) == 1);
        wire::refresh_gate(segment, witness, 0);  // as its watcher does every 20 ms
        REQUIRE(segment.slot(witness).gpus[0].gate.load() == wire::kGateOpen);
        for (int c : {wire::production, wire::standard})
            for (auto& word : segment.header.members[c]) REQUIRE(word.load() == 0);
    }
    REQUIRE(places > 25);
}

// As above, but stopped there instead of killed: once it counts as stopped it holds nobody back, and when it goes on it
// lives its life to the end.
void stops(wire::Segment& segment) {
    int witness = wire::take_slot(segment), places = 0;
    wire::join_class(segment, witness, wire::opportunistic);
    uint32_t stale_ms = segment.header.knobs.stale_ms.load();
    for (bool stopped = true; stopped; ++places) {
        pid_t child = fork();
        if (child == 0) {
            fault_countdown = places;
            fault_signal = SIGSTOP;
            a_life(segment);
            _exit(0);
        }
        int status = 0;
        REQUIRE(waitpid(child, &status, WUNTRACED) == child);
        stopped = WIFSTOPPED(status);
        if (!stopped) {
            REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
            break;
        }
        segment.header.knobs.stale_ms.store(0);  // its heartbeat is too old from now on
        wire::refresh_gate(segment, witness, 0);
        bool released = is_open(segment, witness);
        segment.header.knobs.stale_ms.store(stale_ms);
        kill(child, SIGCONT);
        REQUIRE(released);
        REQUIRE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
        REQUIRE(live(segment) == 1 && wire::refresh_gate(segment, witness, 0));
    }
    REQUIRE(places > 25);
}

void crowd(wire::Segment& segment) {
    for (int i = 0; i < wire::kSlots; ++i) REQUIRE(wire::take_slot(segment) == i);
    REQUIRE(live(segment) == wire::kSlots);
    pid_t child = fork();
    if (child == 0) _exit(wire::take_slot(segment) == -1 ? 0 : 1);
    int status = 1;
    waitpid(child, &status, 0);
    REQUIRE(status == 0);
    for (int i = 0; i < wire::kSlots; ++i) wire::leave_slot(segment, i);
    REQUIRE(live(segment) == 0 && wire::take_slot(segment) == 0);
}

void leave(wire::Segment& segment) {
    int low = wire::take_slot(segment), high = wire::take_slot(segment);
    wire::join_class(segment, low, wire::opportunistic);
    wire::join_class(segment, high, wire::production);
    wire::go_busy(segment, high, 3);
    never_stale(segment, high);
    REQUIRE(segment.slot(low).gpus[3].gate.load() != wire::kGateOpen);
    REQUIRE(segment.slot(low).gpus[2].gate.load() == wire::kGateOpen);
    wire::leave_slot(segment, low);
    REQUIRE(segment.slot(low).gpus[3].gate.load() == wire::kGateOpen);
    // A newcomer finds it closed again.
    int next = wire::take_slot(segment);
    wire::join_class(segment, next, wire::standard);
    REQUIRE(segment.slot(next).gpus[3].gate.load() != wire::kGateOpen);
}

void race(wire::Segment& segment) {
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
                if (rand_r(&seed) % 4 || i < 19990) wire::go_idle(segment, slots[t], 0);
            }
            never_stale(segment, slots[t]);
            ++ready;
            while (!stop.load()) usleep(100);
            std::lock_guard alone(coming_and_going);
            wire::leave_slot(segment, slots[t]);
        });
    }
    while (ready.load() < 12) usleep(100);
    for (int t = 0; t < 6; ++t) {
        bool goes = admission::may_run(admission::strict, wire::standing(segment, slots[t], 0));
        REQUIRE(goes == is_open(segment, slots[t]));
    }
    stop.store(true);
    for (auto& thread : threads) thread.join();
    REQUIRE(live(segment) == 0);
}

// A slot is its thread's: it is lost with the thread, in a process that goes on, and the C library's list is back after
// a slot was left.
void thread(wire::Segment& segment) {
    int slot = -1;
    std::thread([&] { slot = wire::take_slot(segment); }).join();
    REQUIRE(slot == 0 && live(segment) == 0 && segment.slot(slot).owner.load() == wire::kOwnerDied);
    REQUIRE(wire::take_slot(segment) == 0 && live(segment) == 1);
    wire::leave_slot(segment, 0);
    robust_list_head* list = nullptr;
    size_t bytes = 0;
    REQUIRE(syscall(SYS_get_robust_list, 0, &list, &bytes) == 0 && list != &wire::attached(segment).hold.head);
}

void fill(void* where, uint8_t with) { memset(where, with, wire::kSmallestPlace); }

void garbage(wire::Segment& segment) {
    int high = busy_tenant(segment, wire::production), low = busy_tenant(segment, wire::opportunistic);
    uint8_t uuid[16] = {7};
    for (uint8_t with : {0x00, 0x01, 0x3f, 0x7f, 0x80, 0xff}) {
        for (int i = 0; i < wire::kSlots; ++i) fill(&segment.slot(i), with);
        fill(&segment.header, with);
        for (int slot : {high, low}) {
            wire::go_busy(segment, slot, 0);
            wire::refresh_gates(segment, wire::production, 0);
            wire::charge(segment, slot, 0, 1000000, 1000000);
            wire::catch_up(segment, slot, 0);
            wire::reap_slots(segment);
            wire::go_idle(segment, slot, 0);
        }
        REQUIRE(wire::gpu_number(segment, uuid) < wire::kGpus);
        // The header is the user's again; each watcher mends its slot.
        fill(&segment.header, 0);
        wire::begin_header(segment.header);
        for (int slot : {high, low}) {
            REQUIRE(wire::keep_slot(segment, slot) && wire::is_live(segment.slot(slot)));
            wire::join_class(segment, slot, slot == high ? wire::production : wire::opportunistic);
            segment.slot(slot).gpus[0].busy.store(0);
        }
        REQUIRE(wire::refresh_gate(segment, low, 0) && is_open(segment, low));
        wire::go_busy(segment, high, 0);
        REQUIRE(!is_open(segment, low));
        never_stale(segment, high);
        // The value before `open` as somebody might have left it: closing is no opening.
        segment.slot(low).gpus[0].gate.store(wire::kGateOpen - 2);
        wire::close_gates_below(segment, high, 0);
        REQUIRE(!is_open(segment, low));
        segment.slot(low).gpus[0].gate.store(wire::kGateOpen - 2);
        REQUIRE(!wire::refresh_gate(segment, low, 0) && !is_open(segment, low));
        // One who waits in the line of equals is not kept there by a key that nobody can have.
        wire::go_idle(segment, high, 0);
    }
    // Overwritten, taken again, and killed: the kernel marks it all the same.
    pid_t child = fork();
    if (child == 0) {
        int slot = wire::take_slot(segment);
        for (uint32_t word : {0u, 0x3f3f3f3fu, 0xffffffffu, wire::kOwnerDied}) {
            segment.slot(slot).owner.store(word);
            segment.slot(slot).identity_check.store(1);
            if (!wire::keep_slot(segment, slot)) _exit(1);
        }
        raise(SIGKILL);
    }
    int status = 0, before = live(segment);
    REQUIRE(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    REQUIRE(live(segment) <= before && wire::reap_slots(segment) >= 1);
}

void abandoned(wire::Segment& segment) {
    int own = wire::take_slot(segment);
    wire::join_class(segment, own, wire::opportunistic);
    wire::go_busy(segment, own, 0);
    never_stale(segment, own);
    wire::Slot& other = segment.slot(9);
    auto pretend = [&](const wire::Identity& identity, uint64_t heartbeat_ns) {
        other.owner.store(12345);
        other.tenant_class.store(wire::production);
        segment.header.members[wire::production][0].store(1 << 9);
        other.gpus[0].busy.store(1);
        other.heartbeat_ns.store(heartbeat_ns);
        wire::write_identity(other, identity);
    };
    pid_t dead = fork();
    if (dead == 0) _exit(0);
    waitpid(dead, nullptr, 0);
    uint64_t now = wire::now_ns(), old = now - 100ull * 1000000000, future = now + 100ull * 1000000000;
    wire::Identity gone = wire::own_identity(), elsewhere = gone, self = gone;
    gone.pid = static_cast<uint32_t>(dead);
    elsewhere.pid = gone.pid;
    elsewhere.pid_namespace = 1;
    // It has just shown itself; it is there, though stopped; or it is in a container, where we cannot see it.
    pretend(gone, now);
    REQUIRE(wire::reap_slots(segment) == 0 && !wire::refresh_gate(segment, own, 0));
    pretend(self, old);
    REQUIRE(wire::reap_slots(segment) == 0);
    pretend(elsewhere, old);
    REQUIRE(wire::reap_slots(segment) == 0);
    // A heartbeat from the future is no sign of life, and holds nobody back.
    pretend(self, future);
    REQUIRE(!wire::has_work(segment, 9, 0) && wire::refresh_gate(segment, own, 0));
    for (uint64_t heartbeat : {old, future}) {
        pretend(gone, heartbeat);
        REQUIRE(wire::reap_slots(segment) == 1 && !wire::is_live(other));
        pretend(self, heartbeat);
        other.identity_check.fetch_add(1);  // nobody has signed this
        REQUIRE(wire::reap_slots(segment) == 1 && other.owner.load() == 0);
    }
    wire::Identity reused = self;
    reused.started += 1;  // another process has its number now
    pretend(reused, old);
    REQUIRE(wire::reap_slots(segment) == 1 && live(segment) == 1);
}

void leaving(wire::Segment& segment) {
    int high = busy_tenant(segment, wire::production), low = busy_tenant(segment, wire::opportunistic);
    REQUIRE(high >= 0 && !wire::refresh_gate(segment, low, 0));
    for (wire::Where where : {wire::resident, wire::evicting, wire::evicted, wire::restoring}) {
        segment.slot(low).residence.where.store(where);
        REQUIRE(wire::refresh_gate(segment, low, 0) == (where == wire::evicting));
    }
}

void hold(wire::Segment& segment) {
    wire::take_slot(segment);
    printf("holding\n");
    fflush(stdout);
    while (getchar() != EOF) {
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    std::string why;
    wire::Segment* segment = wire::create_or_open_segment(argv[1], &why);
    if (!segment) {
        fprintf(stderr, "%s\n", why.c_str());
        return 1;
    }
    if (!strcmp(argv[2], "churn")) churn(*segment, atoi(argv[3]));
    if (!strcmp(argv[2], "crowd")) crowd(*segment);
    if (!strcmp(argv[2], "leave")) leave(*segment);
    if (!strcmp(argv[2], "race")) race(*segment);
    if (!strcmp(argv[2], "turns")) turns(*segment);
    if (!strcmp(argv[2], "steered")) steered(*segment);
    if (!strcmp(argv[2], "stopped")) stopped(*segment);
    if (!strcmp(argv[2], "faults")) faults(*segment);
    if (!strcmp(argv[2], "stops")) stops(*segment);
    if (!strcmp(argv[2], "thread")) thread(*segment);
    if (!strcmp(argv[2], "garbage")) garbage(*segment);
    if (!strcmp(argv[2], "abandoned")) abandoned(*segment);
    if (!strcmp(argv[2], "leaving")) leaving(*segment);
    if (!strcmp(argv[2], "hold")) hold(*segment);
    return 0;
}
