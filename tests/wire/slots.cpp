// Exercises the segment without CUDA; each case ends with status 0 or says what was wrong.
//   slots SEGMENT churn N    N processes, one after another, take a slot and are killed in it
//   slots SEGMENT crowd      all slots taken at once, one too many, and free again
//   slots SEGMENT leave      a tenant that leaves behind a closed gate leaves it open
//   slots SEGMENT faults     a process is killed between any two steps of its life in the segment
//   slots SEGMENT stopped    a busy tenant without a heartbeat holds nobody back
//   slots SEGMENT race       many tenants go busy and idle at once; then gates and busy flags must agree
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <signal.h>

// Killed at the n-th place where that may matter.
static int fault_countdown = -1;
#define FAULT_POINT()                               \
    do {                                            \
        if (fault_countdown-- == 0) raise(SIGKILL); \
    } while (0)
#include "wire/segment.cpp"

namespace {

#define REQUIRE(condition)                                                        \
    do {                                                                          \
        if (!(condition)) {                                                       \
            fprintf(stderr, "line %d: %s does not hold\n", __LINE__, #condition); \
            exit(1);                                                              \
        }                                                                         \
    } while (0)

int live(wire::Segment& segment) {
    int count = 0;
    for (int i = 0; i < wire::kSlots; ++i) count += wire::is_live(segment.slot(i));
    return count;
}

// A test may be held up for longer than a heartbeat lasts.
void never_stale(wire::Segment& segment, int slot) {
    segment.slot(slot).heartbeat_ns.store(wire::now_ns() + 3600ull * 1000000000);
}

void stopped(wire::Segment& segment) {
    int low = wire::take_slot(segment), high = wire::take_slot(segment);
    wire::join_class(segment, low, wire::opportunistic);
    wire::join_class(segment, high, wire::production);
    wire::go_busy(segment, high, 0);
    REQUIRE(segment.slot(low).gpus[0].gate.load() == wire::closed);
    never_stale(segment, high);
    wire::refresh_gate(segment, low, 0);
    REQUIRE(segment.slot(low).gpus[0].gate.load() == wire::closed);
    segment.slot(high).heartbeat_ns.store(wire::now_ns() - 1000000000);
    wire::refresh_gate(segment, low, 0);
    REQUIRE(segment.slot(low).gpus[0].gate.load() == wire::open);
    wire::go_busy(segment, high, 0);
    REQUIRE(segment.slot(low).gpus[0].gate.load() == wire::closed);
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
        REQUIRE(segment.slot(witness).gpus[0].gate.load() == wire::closed);
        REQUIRE(live(segment) == 1);
        // Every other one is buried at once, the rest by whoever takes the slot next.
        if (i % 2) {
            REQUIRE(wire::bury_the_dead(segment) == 1);
            REQUIRE(segment.slot(witness).gpus[0].gate.load() == wire::open);
        }
    }
    wire::bury_the_dead(segment);
    REQUIRE(segment.slot(witness).gpus[0].gate.load() == wire::open);
    for (auto& word : segment.header.members[wire::production]) REQUIRE(word.load() == 0);
}

void a_life(wire::Segment& segment) {
    int slot = wire::take_slot(segment);
    wire::join_class(segment, slot, wire::production);
    wire::go_busy(segment, slot, 0);
    segment.slot(slot).gpus[0].busy.store(0);
    FAULT_POINT();
    wire::reopen_gates_below(segment, wire::production, 0);
    wire::join_class(segment, slot, wire::standard);
    wire::go_busy(segment, slot, 0);
    wire::bury_the_dead(segment);
    wire::leave_slot(segment, slot);
}

void faults(wire::Segment& segment) {
    int witness = wire::take_slot(segment), places = 0;
    wire::join_class(segment, witness, wire::opportunistic);
    for (bool killed = true; killed; ++places) {
        // A corpse to bury for the one that will be killed itself.
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
        wire::bury_the_dead(segment);
        REQUIRE(live(segment) == 1);
        wire::refresh_gate(segment, witness, 0);  // as its watcher does every 20 ms
        REQUIRE(segment.slot(witness).gpus[0].gate.load() == wire::open);
        for (int c : {wire::production, wire::standard})
            for (auto& word : segment.header.members[c]) REQUIRE(word.load() == 0);
    }
    REQUIRE(places > 40);
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
    REQUIRE(segment.slot(low).gpus[3].gate.load() == wire::closed);
    REQUIRE(segment.slot(low).gpus[2].gate.load() == wire::open);
    wire::leave_slot(segment, low);
    REQUIRE(segment.slot(low).gpus[3].gate.load() == wire::open);
    // A newcomer finds it closed again.
    int next = wire::take_slot(segment);
    wire::join_class(segment, next, wire::standard);
    REQUIRE(segment.slot(next).gpus[3].gate.load() == wire::closed);
}

void race(wire::Segment& segment) {
    std::atomic<int> ready{0};
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    std::vector<int> slots(6);
    for (int t = 0; t < 6; ++t) {
        threads.emplace_back([&, t] {
            slots[t] = wire::take_slot(segment);
            auto tenant_class = static_cast<wire::Class>(t % 3);
            wire::join_class(segment, slots[t], tenant_class);
            ++ready;
            while (ready.load() < 6) usleep(100);
            unsigned seed = t;
            for (int i = 0; i < 20000; ++i) {
                wire::OnGpu& here = segment.slot(slots[t]).gpus[0];
                wire::go_busy(segment, slots[t], 0);
                if (rand_r(&seed) % 4 || i < 19990) {
                    here.busy.store(0);
                    wire::reopen_gates_below(segment, tenant_class, 0);
                }
            }
            never_stale(segment, slots[t]);
            ++ready;
            while (!stop.load()) usleep(100);
            wire::leave_slot(segment, slots[t]);
        });
    }
    while (ready.load() < 12) usleep(100);
    for (int t = 0; t < 6; ++t) {
        bool yields = wire::must_yield(segment, t % 3, 0);
        bool shut = segment.slot(slots[t]).gpus[0].gate.load() == wire::closed;
        REQUIRE(yields == shut || t % 3 == 0);
    }
    stop.store(true);
    for (auto& thread : threads) thread.join();
    REQUIRE(live(segment) == 0);
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
    if (!strcmp(argv[2], "stopped")) stopped(*segment);
    if (!strcmp(argv[2], "faults")) faults(*segment);
    return 0;
}
