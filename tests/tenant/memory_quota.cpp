// The memory limit on shared memory alone; each case ends with status 0 or says what was wrong.
//   memory_quota SEGMENT faults     a process is killed between any two steps of taking and giving memory
//   memory_quota SEGMENT race       processes that race for the last bytes never go over together
//   memory_quota SEGMENT mending    what somebody has overwritten is put right, and what is being changed is left alone
//   memory_quota SEGMENT family     whose memory counts together, and whose does not
//   memory_quota SEGMENT garbage    a count that cannot be right counts as nothing
//   memory_quota - limit TEXT TOTAL     prints what TEXT means on a GPU with TOTAL bytes
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

static std::atomic<int> fault_countdown{-1};  // every thread passes the points
static void (*meanwhile)() = nullptr;
#define FAULT_POINT()                               \
    do {                                            \
        if (meanwhile) meanwhile();                 \
        if (fault_countdown-- == 0) raise(SIGKILL); \
    } while (0)
#include "../require.h"
#include "../wire/cases.h"
#include "tenant/memory/quota.cpp"
#include "wire/segment.h"

namespace {

wire::Slot& join(wire::Segment& segment, uint8_t run) {
    int index = wire::take_slot(segment);
    REQUIRE(index >= 0);
    memset(segment.slot(index).run_id, run, 16);
    wire::join_class(segment, index, wire::standard);
    return segment.slot(index);
}

int wait_for(pid_t child) {
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    return status;
}

constexpr uint64_t kLimit = 1000;

void faults(wire::Segment& segment) {
    wire::Slot& witness = join(segment, 7);
    REQUIRE(tenant::take_memory(segment, witness, 0, 100, kLimit));
    // Nothing more can always be had, also by one that has more than it may have by now.
    REQUIRE(tenant::take_memory(segment, witness, 0, 0, 50) && !tenant::take_memory(segment, witness, 0, 1, 50));
    int places = 0;
    for (bool killed = true; killed; ++places) {
        pid_t child = fork();
        if (child == 0) {
            wire::Slot& slot = join(segment, 7);
            fault_countdown = places;
            REQUIRE(tenant::take_memory(segment, slot, 0, 300, kLimit));
            REQUIRE(!tenant::take_memory(segment, slot, 0, 800, kLimit));
            tenant::give_memory(slot, 0, 300);
            tenant::count_memory(slot, 0, 50);
            fault_countdown = -1;
            raise(SIGTERM);
        }
        int status = wait_for(child);
        killed = WTERMSIG(status) == SIGKILL;
        // Whether anybody has cleaned up after it or not.
        REQUIRE(tenant::memory_used(segment, witness, 0, 0) == 100);
        REQUIRE(tenant::take_memory(segment, witness, 0, 900, kLimit));
        tenant::give_memory(witness, 0, 900);
        if (places % 2) wire::reap_slots(segment);
    }
    REQUIRE(places > 6);
}

void race(wire::Segment& segment) {
    // What all have really taken, beside the ledger: it may never be over the limit.
    auto* truth =
        reinterpret_cast<std::atomic<uint64_t>*>(reinterpret_cast<char*>(&segment) + sizeof(wire::Header) + 64);
    truth[0].store(0);
    truth[1].store(0);
    pid_t children[4];
    for (int i = 0; i < 4; ++i) {
        children[i] = fork();
        if (children[i] != 0) continue;
        wire::Slot& slot = join(segment, 7);
        unsigned seed = i;
        for (int round = 0; round < 20000; ++round) {
            uint64_t bytes = rand_r(&seed) % 600;
            if (!tenant::take_memory(segment, slot, 0, bytes, kLimit)) continue;
            REQUIRE((truth[0] += bytes) <= kLimit);
            truth[1] += 1;
            if (round % 16 == 0) usleep(1);
            truth[0] -= bytes;
            tenant::give_memory(slot, 0, bytes);
        }
        REQUIRE(slot.gpus[0].memory_bytes.load() == 0);
        _exit(0);
    }
    for (pid_t child : children) REQUIRE(wait_for(child) == 0);
    REQUIRE(truth[1].load() > 1000);
}

void mending(wire::Segment& segment) {
    static wire::Slot& slot = join(segment, 7);
    tenant::own_quota(slot, kLimit);
    wire::Count& shown = slot.gpus[2].memory_bytes;
    // The watcher looks after the first step of a change, more than once, and not again: it would mend its own fault.
    auto watched = [] {
        meanwhile = [] {
            meanwhile = nullptr;
            for (int looks = 0; looks < 3; ++looks) tenant::mend_quota(slot);
        };
    };
    watched();
    REQUIRE(tenant::take_memory(segment, slot, 2, 300, kLimit) && shown.load() == 300);
    watched();
    REQUIRE(!tenant::take_memory(segment, slot, 2, 800, kLimit) && shown.load() == 300);
    watched();
    tenant::give_memory(slot, 2, 100);
    REQUIRE(shown.load() == 200 && tenant::memory_of_process(slot, 2, 0) == 200 && !meanwhile);
    shown.store(0xdeadbeef);
    slot.memory_limit.store(3);
    tenant::mend_quota(slot);
    REQUIRE(shown.load() == 200 && slot.memory_limit.load() == kLimit);
    // Its own evicted memory comes back; it allocates nothing before.
    wire::Count& evicted = slot.memory[2].evicted_bytes;
    tenant::show_evicted(slot, 2, 500);
    REQUIRE(evicted.load() == 500 && tenant::memory_allocated(segment, slot, 2, 0) == 200);
    evicted.store(0xdeadbeef);
    tenant::mend_quota(slot);
    REQUIRE(evicted.load() == 500);
}

void family(wire::Segment& segment) {
    wire::Slot &a = join(segment, 7), &b = join(segment, 7), &stranger = join(segment, 8);
    wire::Slot &alone = join(segment, 0), &alone_too = join(segment, 0);
    for (wire::Slot* slot : {&a, &b, &stranger, &alone, &alone_too})
        REQUIRE(tenant::take_memory(segment, *slot, 0, slot == &b ? 300 : 700, kLimit));
    REQUIRE(!tenant::take_memory(segment, a, 0, 1, kLimit) && !tenant::take_memory(segment, b, 0, 1, kLimit));
    REQUIRE(tenant::take_memory(segment, a, 1, 1000, kLimit));
    REQUIRE(tenant::take_memory(segment, b, 0, 5000, tenant::kNoLimit));
    REQUIRE(!tenant::take_memory(segment, stranger, 0, UINT64_MAX, kLimit));
    REQUIRE(tenant::process_of(segment, a.run_id, &a) == &b && !tenant::process_of(segment, alone.run_id, &alone));
    // What another process of the run has evicted is allocated, too, whatever is on the GPU now.
    b.memory[1].evicted_bytes.store(300);
    stranger.memory[1].evicted_bytes.store(900);
    tenant::give_memory(a, 1, 1000);
    REQUIRE(!tenant::take_memory(segment, a, 1, 701, kLimit) && tenant::take_memory(segment, a, 1, 700, kLimit));
    REQUIRE(tenant::memory_allocated(segment, a, 1, 0) == 1000 && tenant::memory_used(segment, a, 1, 0) == 700);
    b.memory_limit.store(5);
    REQUIRE(tenant::memory_limit(b, 100) == 5 && tenant::memory_limit(a, 100) == tenant::kNoLimit);
    // A user's limit is for that user's processes, of whatever run, and for nobody else's.
    wire::attached(segment).uid = a.uid;
    for (wire::Slot* slot : {&a, &alone, &stranger}) tenant::count_memory(*slot, 2, 300);
    REQUIRE(tenant::memory_allocated_by_user(segment, 2, 0) == 900);
    alone.memory[2].evicted_bytes.store(50);
    REQUIRE(tenant::memory_allocated_by_user(segment, 2, 0) == 950);
    alone.memory[2].evicted_bytes.store(0);
    for (uid_t other : {a.uid + 1, a.uid - 1}) {
        stranger.uid = other;
        REQUIRE(tenant::memory_allocated_by_user(segment, 2, 0) == 600);
        REQUIRE(!tenant::take_memory(segment, a, 2, 401, tenant::kNoLimit, kLimit));
        REQUIRE(tenant::take_memory(segment, a, 2, 400, tenant::kNoLimit, kLimit));
        tenant::give_memory(a, 2, 400);
    }
}

void garbage(wire::Segment& segment) {
    constexpr uint64_t kTotal = 4000;
    wire::Slot &a = join(segment, 7), &b = join(segment, 7);
    uint64_t none = tenant::kNoLimit;
    for (uint64_t bytes : {kTotal * 8 + 8, uint64_t{1} << 40, UINT64_MAX - 200, UINT64_MAX}) {
        b.gpus[0].memory_bytes.store(bytes);
        REQUIRE(tenant::take_memory(segment, a, 0, 900, kLimit, none, kTotal));
        REQUIRE(!tenant::take_memory(segment, a, 0, 101, kLimit, none, kTotal));
        REQUIRE(tenant::memory_used(segment, a, 0, kTotal) == 900);
        REQUIRE(tenant::memory_used(segment, a.run_id, 0, kTotal) == 900);
        REQUIRE(tenant::memory_allocated_by_user(segment, 0, kTotal) == 900);
        tenant::give_memory(a, 0, 900);
    }
    // Managed memory may be more than the GPU has.
    b.gpus[0].memory_bytes.store(kTotal * 2);
    REQUIRE(!tenant::take_memory(segment, a, 0, 1, kTotal * 2, none, kTotal));
    // What this process has counted itself is no garbage, however much it is.
    tenant::own_quota(a, 0);
    tenant::count_memory(a, 0, kTotal * 9);
    REQUIRE(tenant::memory_used(segment, a, 0, kTotal) == kTotal * 11);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc > 3 && !strcmp(argv[2], "limit")) {
        uint64_t limit = tenant::parse_memory_limit(argv[3]);
        printf("%llu", (unsigned long long)tenant::limit_in_bytes(limit, strtoull(argv[4], nullptr, 10)));
        return 0;
    }
    return run_case(
        argc, argv,
        {{"faults", faults}, {"race", race}, {"mending", mending}, {"family", family}, {"garbage", garbage}});
}
