// What it costs to note an interval, and what a place costs that would note one while nobody asks.
#include <time.h>

#include <cstdio>
#include <cstdlib>

#include "tenant/timeline.h"
#include "wire/clock.h"

namespace {

constexpr int kTimes = 2000000;

double ns_each() {
    timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    for (int i = 0; i < kTimes; ++i) tenant::timeline::Interval copying(tenant::timeline::Event::copy, 0);
    clock_gettime(CLOCK_MONOTONIC, &after);
    double ns = (after.tv_sec - before.tv_sec) * 1e9 + static_cast<double>(after.tv_nsec - before.tv_nsec);
    return ns / kTimes;
}

}  // namespace

int main() {
    auto* slot = static_cast<wire::Slot*>(calloc(1, sizeof(wire::Slot)));
    if (!slot) return 1;
    double off = ns_each();
    tenant::timeline::begin(*slot, 1024);
    if (!slot->timeline.load()) return 1;
    printf("{\"ns_off\": %.2f, \"ns_on\": %.2f}\n", off, ns_each());
    return 0;
}
