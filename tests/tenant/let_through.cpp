// Who is let through at a gate, and for how long (native/tenant/let_through.h).
#include "tenant/let_through.h"

#include "../require.h"

using namespace tenant;

DriverCalls tenant::driver;  // nothing is put into a stream here

int main() {
    constexpr uint64_t kSecond = 1000000000;
    Progress progress;
    LetThrough through;
    REQUIRE(!through.is_waited_for(progress, 0));
    uint32_t past = through.begin(progress, 0), lost = through.begin(progress, 0);
    REQUIRE(past && lost && past != lost);
    static_cast<std::atomic<uint32_t>*>(progress.words())[past].store(0);  // the GPU's part
    REQUIRE(through.is_waited_for(progress, kSecond));
    // One whose context has ended is never written.
    REQUIRE(!through.is_waited_for(progress, kSecond + 1));
    uint32_t cancelled = through.begin(progress, 2 * kSecond);
    through.cancel(progress, cancelled);
    REQUIRE(!through.is_waited_for(progress, 2 * kSecond));
    // Of several, each is cancelled by itself.
    uint32_t one = through.begin(progress, 2 * kSecond), other = through.begin(progress, 2 * kSecond);
    through.cancel(progress, one);
    REQUIRE(through.is_waited_for(progress, 2 * kSecond));
    through.cancel(progress, other);
    REQUIRE(!through.is_waited_for(progress, 2 * kSecond));
    int most = 0;
    while (through.begin(progress, 3 * kSecond)) ++most;
    REQUIRE(most == 16 && !through.is_waited_for(progress, 5 * kSecond) && through.begin(progress, 5 * kSecond));
    // However many have waited, or found no place, their words are free again.
    REQUIRE(!through.is_waited_for(progress, 7 * kSecond));
    for (uint64_t i = 0; i < 3000; ++i) {
        uint64_t now = (10 + 2 * i) * kSecond;
        uint32_t first = through.begin(progress, now), second = through.begin(progress, now);
        REQUIRE(first && second);
        through.cancel(progress, first);
        static_cast<std::atomic<uint32_t>*>(progress.words())[second].store(0);
        REQUIRE(!through.is_waited_for(progress, now));
    }
    for (most = 0; through.begin(progress, 10000 * kSecond);) ++most;
    for (int i = 0; i < 3000; ++i) REQUIRE(!through.begin(progress, 10000 * kSecond));
    REQUIRE(most == 16 && progress.take_graph_word());
    return 0;
}
