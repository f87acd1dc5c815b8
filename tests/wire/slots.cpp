// Exercises the segment without CUDA; each case ends with status 0 or says what was wrong.
//   slots SEGMENT churn N    N processes, one after another, take a slot and are killed in it
//   slots SEGMENT crowd      all slots taken at once, one too many, and free again
//   slots SEGMENT faults     a process is killed between any two steps of its life in the segment
//   slots SEGMENT stops      the same, stopped instead of killed
//   slots SEGMENT thread     a slot is lost with the thread that took it
//   slots SEGMENT garbage    whatever is written into slots and header, nothing crashes, and the owner mends its own
//   slots SEGMENT abandoned  what only looks live is reaped; what is alive is not
//   slots SEGMENT leaving    a tenant that has left holds none of its streams at a gate
//   slots SEGMENT gpus       a GPU has one number, also where a process is killed or stopped as it gives it one
//   slots SEGMENT hold       a tenant; prints a line, and ends with its input
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

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

#include "cases.h"
#include "tenants.h"

namespace {

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

void gpus(wire::Segment& segment) {
    uint8_t uuid[16] = {7}, another[16] = {8};
    auto number_by = [&](int signal, const uint8_t* of) {
        pid_t child = fork();
        if (child == 0) {
            fault_countdown = 0;
            fault_signal = signal;
            _exit(wire::gpu_number(segment, of));
        }
        int status = 0;
        REQUIRE(waitpid(child, &status, WUNTRACED) == child && (WIFSIGNALED(status) || WIFSTOPPED(status)));
        return child;
    };
    number_by(SIGKILL, uuid);
    REQUIRE(wire::gpu_number(segment, uuid) == 1 && wire::gpu_number(segment, uuid) == 1);
    REQUIRE(segment.header.gpus[0].known.load() == wire::kGpuLost);  // who comes later need not wait for it
    pid_t stopped = number_by(SIGSTOP, another);
    REQUIRE(wire::gpu_number(segment, another) == 3);
    kill(stopped, SIGCONT);
    int status = 0;
    REQUIRE(waitpid(stopped, &status, 0) == stopped && WIFEXITED(status) && WEXITSTATUS(status) == 3);
    REQUIRE(wire::gpu_number(segment, another) == 3 && wire::gpu_number(segment, uuid) == 1);
}

void crowd(wire::Segment& segment) {
    for (int i = 0; i < wire::kSlots; ++i) REQUIRE(wire::take_slot(segment) == i);
    REQUIRE(live(segment) == wire::kSlots);
    wire::join_class(segment, 70, wire::opportunistic);
    wire::join_class(segment, 200, wire::production);
    uint64_t words[wire::kSlotWords];
    wire::members(segment, words);
    REQUIRE(words[0] == 0 && words[1] == 1 << 6 && words[2] == 0 && words[3] == 1 << 8);
    pid_t child = fork();
    if (child == 0) _exit(wire::take_slot(segment) == -1 ? 0 : 1);
    int status = 1;
    waitpid(child, &status, 0);
    REQUIRE(status == 0);
    for (int i = 0; i < wire::kSlots; ++i) wire::leave_slot(segment, i);
    REQUIRE(live(segment) == 0 && wire::take_slot(segment) == 0);
}

// A slot is its thread's: it is lost with the thread, in a process that goes on, and the C library's list is back after
// a slot was left.
void thread(wire::Segment& segment) {
    int slot = -1;
    std::thread([&] { slot = wire::take_slot(segment); }).join();
    REQUIRE(slot == 0 && live(segment) == 0 && segment.slot(slot).owner.load() == wire::kOwnerDied);
    robust_list_head *before = nullptr, *after = nullptr;
    size_t size = 0;
    REQUIRE(syscall(SYS_get_robust_list, 0, &before, &size) == 0 && wire::reap_slots(segment) == 1);
    REQUIRE(syscall(SYS_get_robust_list, 0, &after, &size) == 0 && after == before);
    // Of two slots of one thread the first is marked, whatever comes of the second.
    std::thread([&] { REQUIRE(wire::take_slot(segment) == 0 && wire::take_slot(segment) == 1); }).join();
    REQUIRE(segment.slot(0).owner.load() == wire::kOwnerDied && wire::is_live(segment.slot(1)));
    segment.slot(1).owner.store(0);
    REQUIRE(wire::take_slot(segment) == 0 && live(segment) == 1);
    wire::leave_slot(segment, 0);
    robust_list_head* list = nullptr;
    size_t bytes = 0;
    REQUIRE(syscall(SYS_get_robust_list, 0, &list, &bytes) == 0 && list != &wire::attached(segment).hold.head);
}

void fill(void* where, uint8_t with) { memset(where, with, wire::kSmallestPlace); }

void garbage(wire::Segment& segment) {
    int high = busy_tenant(segment, wire::production), low = busy_tenant(segment, wire::opportunistic);
    uint8_t uuid[16] = {7}, another[16] = {8};
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
        REQUIRE(wire::gpu_number(segment, uuid) == 0 && wire::gpu_number(segment, another) == 1);
        REQUIRE(wire::gpu_number(segment, uuid) == 0);
        // The header is the user's again; each watcher mends its slot.
        fill(&segment.header, 0);
        wire::begin_header(segment.header);
        for (int slot : {high, low}) {
            wire::Identity there;
            REQUIRE(wire::keep_slot(segment, slot) && wire::is_live(segment.slot(slot)));
            REQUIRE(wire::read_identity(segment.slot(slot), &there) && there == wire::own_identity());
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
    // One who is gone does not drive us out of our slot; one who may be alive does.
    for (const wire::Identity& identity : {gone, elsewhere}) {
        segment.slot(own).owner.store(12345);
        wire::write_identity(segment.slot(own), identity);
        REQUIRE(wire::keep_slot(segment, own) == (identity == gone));
    }
}

void leaving(wire::Segment& segment) {
    int slot = wire::take_slot(segment);
    constexpr uint32_t kClosed = wire::kGateOpen + 2;
    for (int gpu = 0; gpu < wire::kGpus; ++gpu) {
        segment.slot(slot).gpus[gpu].gate.store(kClosed);
        segment.slot(slot).copy_gates[gpu].store(kClosed);
    }
    wire::leave_slot(segment, slot);
    for (int gpu = 0; gpu < wire::kGpus; ++gpu) {
        REQUIRE(segment.slot(slot).gpus[gpu].gate.load() == wire::kGateOpen);
        REQUIRE(segment.slot(slot).copy_gates[gpu].load() == wire::kGateOpen);
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
    return run_case(argc, argv,
                    {{"churn", [&](wire::Segment& segment) { churn(segment, argc > 3 ? atoi(argv[3]) : 0); }},
                     {"crowd", crowd},
                     {"faults", faults},
                     {"stops", stops},
                     {"thread", thread},
                     {"garbage", garbage},
                     {"abandoned", abandoned},
                     {"leaving", leaving},
                     {"gpus", gpus},
                     {"hold", hold}});
}
