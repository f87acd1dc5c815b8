#include "tenant/own_time.h"

#include <sys/resource.h>
#include <time.h>

#include <algorithm>

namespace tenant {

namespace {

constexpr float kRecent = 16;  // times between two waits that the mean remembers
constexpr float kMost = 10;    // of them that one counts for

}  // namespace

OwnTime::Usage OwnTime::usage() {
    // The CPU time that getrusage tells is that of the kernel's last tick, up to 4 ms ago.
    timespec cpu = {};
    rusage used = {};
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu) != 0 || getrusage(RUSAGE_THREAD, &used) != 0) return {};
    return {static_cast<uint64_t>(cpu.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(cpu.tv_nsec), used.ru_nvcsw};
}

bool OwnTime::is_drawn(uint64_t now_ns) {
    if (began_ns_ && now_ns > began_ns_) every_ns_ += (static_cast<float>(now_ns - began_ns_) - every_ns_) / kRecent;
    began_ns_ = now_ns;
    counts_for_ = std::clamp(static_cast<float>(kLookEveryNs) / every_ns_, 1.0f, kMost);
    random_ = random_ * 1664525 + 1013904223;  // the upper bits are random enough
    return static_cast<float>(random_ >> 8) * counts_for_ < static_cast<float>(1 << 24);
}

void OwnTime::begin(uint64_t now_ns) {
    since_ns_ = 0;
    if (!is_drawn(now_ns)) return;
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
    auto counted = [this](uint64_t ns) { return static_cast<uint64_t>(static_cast<float>(ns) * counts_for_); };
    return {counted(cpu - std::min(cpu, left_out_ns_)), slept ? counted(passed - cpu) : 0};
}

}  // namespace tenant
