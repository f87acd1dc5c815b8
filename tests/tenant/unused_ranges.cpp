// unused_ranges: questions to the helper, and its answers (native/tenant/memory/unused_ranges.h).
#include "tenant/memory/unused_ranges.h"

#include <thread>

#include "../require.h"

namespace {

using tenant::cotenant_memory_question, tenant::cotenant_memory_unused;

constexpr uint64_t kStale[] = {0x100000, 64, 0x300000, 64}, kRight[] = {0x700000, 4096, 0x900000, 8192};

// The number of the question that the mover asks meanwhile.
uint32_t next_question() {
    uint32_t question = 0;
    while (!question) question = cotenant_memory_question(1000);
    return question;
}

}  // namespace

int main() {
    using tenant::UnusedRanges;
    REQUIRE(tenant::ask_for_unused_ranges().count == 0);  // nobody listens
    REQUIRE(cotenant_memory_question(0) == 0);

    // The helper takes too long over the first question: there is no answer, and it keeps nobody waiting.
    UnusedRanges found{nullptr, 1};
    std::thread mover([&] { found = tenant::ask_for_unused_ranges(); });
    uint32_t late = next_question();
    mover.join();
    REQUIRE(found.count == 0);

    // A busy machine may keep the helper from answering in time, again and again.
    for (uint32_t last = late; found.count == 0;) {
        std::thread again([&] { found = tenant::ask_for_unused_ranges(); });
        uint32_t question = 0;
        while ((question = next_question()) == last) std::this_thread::yield();
        cotenant_memory_unused(question, kRight, 2);
        again.join();
        last = question;
    }
    // Then it answers the first one, while the mover uses the answer to the second.
    cotenant_memory_unused(late, kStale, 2);
    REQUIRE(found.count == 2);
    REQUIRE(found.ranges[0].address == kRight[0] && found.ranges[0].bytes == kRight[1]);
    REQUIRE(found.ranges[1].address == kRight[2] && found.ranges[1].bytes == kRight[3]);
    return 0;
}
