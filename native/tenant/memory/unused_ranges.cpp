#include "tenant/memory/unused_ranges.h"

#include <algorithm>
#include <cstdlib>

#include "tenant/fork.h"
#include "tenant/locked.h"
#include "wire/clock.h"
#include "wire/sleep.h"

namespace tenant {

namespace {

constexpr uint64_t kPatienceNs = 200000000;

std::atomic<uint32_t> asked{0};     // the number of the last question
std::atomic<uint32_t> answered{0};  // the last one that was answered
std::atomic<uint32_t> listening{0};
Lock lock{Rank::unused_ranges};
UnusedRanges::Range* ranges = nullptr;
uint32_t range_count = 0;

// The helper's threads are not in the child.
void forget_in_child() {
    listening.store(0);
    lock.renew();
}
LISTEN(AtFork, ForkStep::unused_ranges, forget_in_child)

// In ascending order, disjoint, none at the end of the address space.
uint32_t put_in_order(UnusedRanges::Range* all, uint32_t count) {
    std::sort(all, all + count, [](const auto& a, const auto& b) { return a.address < b.address; });
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; ++i) {
        CUdeviceptr end = all[i].address + all[i].bytes;
        if (end <= all[i].address) continue;
        if (kept && all[i].address < all[kept - 1].address + all[kept - 1].bytes) continue;
        all[kept++] = all[i];
    }
    return kept;
}

}  // namespace

UnusedRanges ask_for_unused_ranges() {
    if (!listening.load()) return {};
    uint32_t question = asked.fetch_add(1) + 1;
    wire::wake_here(asked);
    uint64_t began = wire::now_ns();
    for (uint32_t last; (last = answered.load()) != question;) {
        if (wire::now_ns() - began > kPatienceNs) return {};
        wire::wait_here(answered, last, 10000000);
    }
    Locked locked(lock);
    return {ranges, range_count};
}

extern "C" uint32_t cotenant_memory_question(uint32_t timeout_ms) {
    listening.store(1);
    uint32_t last = answered.load();
    if (asked.load() == last) wire::wait_here(asked, last, uint64_t{timeout_ms} * 1000000);
    uint32_t question = asked.load();
    return question == last ? 0 : question;
}

extern "C" void cotenant_memory_unused(uint32_t question, const uint64_t* pairs, uint32_t count) {
    auto* fresh = count ? static_cast<UnusedRanges::Range*>(malloc(count * sizeof(UnusedRanges::Range))) : nullptr;
    uint32_t kept = 0;
    for (uint32_t i = 0; fresh && i < count; ++i) fresh[i] = {pairs[2 * i], pairs[2 * i + 1]};
    if (fresh) kept = put_in_order(fresh, count);
    {
        Locked locked(lock);
        // An answer that comes too late is to a question that nobody asks any more; it could be wrong by now.
        bool is_wanted = question == asked.load() && question != answered.load();
        if (is_wanted) {
            std::swap(ranges, fresh);
            range_count = kept;
        }
    }
    free(fresh);
    answered.store(question);
    wire::wake_here(answered);
}

}  // namespace tenant
