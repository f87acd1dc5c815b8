// own_time: what a thread did between two waits for the GPU (native/tenant/own_time.h).
#include "tenant/own_time.h"

#include <time.h>

#include "../require.h"

namespace {

constexpr uint64_t kMs = 1'000'000;

uint64_t clock_ns(clockid_t clock) {
    timespec now = {};
    clock_gettime(clock, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

uint64_t now_ns() { return clock_ns(CLOCK_MONOTONIC); }
uint64_t cpu_ns() { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

void work(uint64_t ns) {
    uint64_t end = cpu_ns() + ns;
    while (cpu_ns() < end) continue;
}

void sleep(uint64_t ns) {
    timespec wanted = {0, static_cast<long>(ns)};
    nanosleep(&wanted, nullptr);
}

// Of a thread that waits often OwnTime looks at few of the times between two waits, and they tell of all. The clock is
// the thread's own: by that of the machine a thread waits less often while others have the CPU.
void looks_seldom() {
    tenant::OwnTime time;
    uint64_t told_ns = 0, worked_ns = 0;
    int looks = 0;
    for (int i = 0; i < 8'000; ++i) {
        time.begin(cpu_ns());
        uint64_t before = cpu_ns();
        // Every third is longer.
        work(i % 3 ? 20'000 : 80'000);
        worked_ns += cpu_ns() - before;
        uint64_t told = time.end(cpu_ns()).cpu_ns;
        told_ns += told;
        looks += told > 0;
    }
    REQUIRE(looks > 100 && looks < 8'000 / 2);
    REQUIRE(told_ns > worked_ns * 3 / 4 && told_ns < worked_ns * 5 / 4);
}

}  // namespace

int main() {
    looks_seldom();
    tenant::OwnTime time;
    REQUIRE(time.end(now_ns()).cpu_ns == 0 && time.end(now_ns()).asleep_ns == 0);
    for (int i = 0; i < 20; ++i) {
        time.begin(now_ns());
        work(kMs);
        auto spent = time.end(now_ns());
        REQUIRE(spent.cpu_ns >= kMs);
        // It has ended.
        REQUIRE(time.end(now_ns()).cpu_ns == 0);

        // What the thread spun in a wait is none of its work, whenever the kernel adds it up.
        work(kMs);
        time.begin(now_ns());
        sleep(kMs);
        spent = time.end(now_ns());
        REQUIRE(spent.cpu_ns < kMs / 2 && spent.asleep_ns >= kMs / 2);

        // Nor is what was left out, and it is never less than nothing.
        time.begin(now_ns());
        work(2 * kMs);
        time.leave_out(kMs);
        spent = time.end(now_ns());
        REQUIRE(spent.cpu_ns >= kMs);
        time.begin(now_ns());
        time.leave_out(3600 * 1000 * kMs);
        REQUIRE(time.end(now_ns()).cpu_ns == 0);
    }
}
