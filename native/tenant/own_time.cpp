#include "tenant/own_time.h"

#include <sys/resource.h>
#include <time.h>

#include <algorithm>

namespace tenant {

OwnTime::Usage OwnTime::usage() {
    // The times of getrusage are those of the last tick of the kernel's clock, up to 4 ms ago.
    timespec cpu = {};
    rusage used = {};
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu) != 0 || getrusage(RUSAGE_THREAD, &used) != 0) return {};
    return {static_cast<uint64_t>(cpu.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(cpu.tv_nsec), used.ru_nvcsw};
}

void OwnTime::begin(uint64_t now_ns) {
    then_ = usage();
    left_out_ns_ = 0;
    since_ns_ = now_ns;
}

OwnTime::Spent OwnTime::spent(uint64_t now_ns) {
    Usage now = usage();
    uint64_t passed = now_ns > since_ns_ ? now_ns - since_ns_ : 0;
    // In a forked child the thread's usage begins anew.
    uint64_t cpu = std::min(now.cpu_ns > then_.cpu_ns ? now.cpu_ns - then_.cpu_ns : 0, passed);
    // It waits for a CPU where it gave none up itself.
    bool slept = now.sleeps > then_.sleeps;
    since_ns_ = 0;
    return {cpu - std::min(cpu, left_out_ns_), slept ? passed - cpu : 0};
}

}  // namespace tenant
