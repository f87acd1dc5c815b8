// The keys of equals (native/admission/turn_keys.h). Status 0, or the line that does not hold.
#include "admission/turn_keys.h"

#include <random>

#include "../require.h"

using namespace admission;

namespace {

constexpr uint64_t kMs = 1000000;

void charged() {
    REQUIRE(charged_ns(6 * kMs, 1000) == 6 * kMs && charged_ns(6 * kMs, 3000) == 2 * kMs);
    REQUIRE(charged_ns(kMs, 0) == charged_ns(kMs, 1));  // as garbage has it
}

void gets_work() {
    REQUIRE(key_with_work(5 * kMs, kNoKey) == 5 * kMs);
    // One that was away has no right to what the others have used, and no debt from when it was alone.
    REQUIRE(key_with_work(0, 900 * kMs) == 900 * kMs);
    REQUIRE(key_with_work(9000 * kMs, 900 * kMs) == 900 * kMs + kLargestDebtNs);
    REQUIRE(key_with_work(910 * kMs, 900 * kMs) == 910 * kMs);
}

void is_ready() {
    REQUIRE(key_when_ready(5 * kMs, 0) == 5 * kMs && key_when_ready(0, kLargestClaimNs) == 0);
    REQUIRE(key_when_ready(0, 900 * kMs) == 900 * kMs - kLargestClaimNs);
    REQUIRE(key_when_ready(899 * kMs, 900 * kMs) == 899 * kMs);
}

void runs_empty() {
    REQUIRE(key_when_empty(5, kNoKey) == 5 && key_when_empty(5, 4) == 5);
    REQUIRE(key_when_empty(5, 5) == 6 && key_when_empty(5, 9) == 10);
    REQUIRE(key_when_empty(5, kLargestKey) == 5);
}

// A second after the machine's start nobody can have used more, whatever its weight.
void is_false() {
    for (uint64_t now : {uint64_t{1000000000}, uint64_t{1} << 62, UINT64_MAX}) {
        uint64_t most = charged_ns(std::min(now, kLargestKey / 1000), 1);
        REQUIRE(key_for_others(0, now) == 0 && key_for_others(most - 1, now) == most - 1);
        REQUIRE(key_for_others(most, now) == kNoKey && key_for_others(kNoKey - 1, now) == kNoKey);
    }
}

// A turn costs at least what makes it worth its switch; what is executed beyond that is owed as it comes.
void takes_turn() {
    TurnCharge turn;
    REQUIRE(turn.owed_ns(3 * kMs) == 3 * kMs);  // before its first
    REQUIRE(turn.begin(kMs / 5) == kMs);
    REQUIRE(turn.owed_ns(kMs / 4) == 0 && turn.owed_ns(kMs) == kMs / 4 && turn.owed_ns(kMs) == kMs);
    // What one turn has not used is not the next one's.
    turn.begin(kMs / 5);
    REQUIRE(turn.begin(kMs / 10) == kMs / 2 && turn.owed_ns(kMs) == kMs / 2);
}

// Whatever stands in the segment: a key is lowered only by getting work, and then not below the others'.
void garbage() {
    std::mt19937_64 random(1);
    auto any = [&] { return random() % 16 ? random() >> random() % 64 : kNoKey - random() % 2; };
    for (int i = 0; i < 100000; ++i) {
        uint64_t key = any(), other = any();
        REQUIRE(key_when_ready(key, other) >= key && key_when_empty(key, other) >= key);
        uint64_t got = key_with_work(key, other);
        REQUIRE(got >= key || got >= other);
    }
}

}  // namespace

int main() {
    charged();
    takes_turn();
    gets_work();
    is_ready();
    runs_empty();
    is_false();
    garbage();
    return 0;
}
