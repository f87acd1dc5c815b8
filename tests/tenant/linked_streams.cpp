// Whose streams wait for each other, as the watcher finds it (native/tenant/linked_streams.h).
#include "tenant/linked_streams.h"

#include "../require.h"

using namespace tenant;

namespace {

constexpr uint64_t kSecond = 1000000000, kStart = 1000 * kSecond;

// A look at a GPU's streams: so many have work, and the legacy default stream is one of them. Whether all were asked.
bool look(LinkedStreams& streams, uint32_t with_work, uint64_t now_ns, bool has_legacy = false, int gpu = 0) {
    bool counts = streams.is_to_be_counted(gpu, now_ns);
    if (counts || has_legacy) streams.saw(gpu, counts ? with_work : 0, has_legacy, now_ns);
    return counts;
}

// Streams that wait for no event are independent of each other, and are not asked.
void independent() {
    LinkedStreams streams;
    REQUIRE(!look(streams, 8, kStart) && !look(streams, 8, kStart + 1) && !streams.count(0));
}

void by_events() {
    LinkedStreams streams;
    look(streams, 3, kStart);
    LinkedStreams::note_event_wait();
    REQUIRE(look(streams, 1, kStart + 1) && !streams.count(0));  // one stream that waits for itself
    REQUIRE(look(streams, 3, kStart + 2) && streams.count(0) == 3 && !streams.count(1));
    // What is known is asked again a tenth of a second later.
    REQUIRE(!look(streams, 4, kStart + kSecond / 20) && streams.count(0) == 3);
    REQUIRE(look(streams, 4, kStart + kSecond / 5) && streams.count(0) == 4);
    // It lasts for two seconds, and so does a wait.
    REQUIRE(look(streams, 1, kStart + kSecond) && streams.count(0) == 4);
    REQUIRE(look(streams, 1, kStart + 3 * kSecond) && !streams.count(0));
    REQUIRE(!look(streams, 4, kStart + 4 * kSecond) && !streams.count(0));
    LinkedStreams::note_event_wait();
    REQUIRE(look(streams, 2, kStart + 5 * kSecond) && streams.count(0) == 2);
}

// Its order with other streams needs no event.
void by_the_legacy_stream() {
    LinkedStreams streams;
    REQUIRE(!look(streams, 2, kStart, true) && !streams.count(0));
    REQUIRE(look(streams, 1, kStart + 1, true) && !streams.count(0));
    REQUIRE(look(streams, 2, kStart + 2, true) && streams.count(0) == 2);
    REQUIRE(look(streams, 2, kStart + kSecond, false) && streams.count(0) == 2);
    REQUIRE(look(streams, 2, kStart + 3 * kSecond, false) && !streams.count(0));
    REQUIRE(!look(streams, 2, kStart + 4 * kSecond));
}

// Each GPU by itself, and each tenant of a process learns of a wait.
void apart() {
    LinkedStreams one, other;
    look(one, 1, kStart), look(other, 1, kStart);
    look(one, 1, kStart, false, 5);
    LinkedStreams::note_event_wait();
    REQUIRE(look(one, 2, kStart + 1, false, 5) && one.count(5) == 2 && !one.count(0));
    REQUIRE(look(other, 2, kStart + 1) && other.count(0) == 2);
}

}  // namespace

int main() {
    independent();
    by_events();
    by_the_legacy_stream();
    apart();
    return 0;
}
