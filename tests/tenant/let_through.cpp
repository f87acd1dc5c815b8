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
    int most = 0;
    while (through.begin(progress, 3 * kSecond)) ++most;
    REQUIRE(most == 16 && !through.is_waited_for(progress, 5 * kSecond) && through.begin(progress, 5 * kSecond));
    return 0;
}
