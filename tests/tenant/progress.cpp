// What is known of a stream from the marks that the GPU writes: `progress behind`, `empty` or `operations`. Status 0,
// or the line that does not hold.
#include "tenant/progress.h"

#include <cstring>

#include "../require.h"
#include "admission/admission.h"

using tenant::Progress;
using tenant::StreamState;

tenant::DriverCalls tenant::driver;  // nothing is put into a stream here

struct Stream {
    Progress progress;
    StreamState state;

    Stream() {
        state.number = 1;
        state.progress_word = 4;
    }
    void issue(int count, uint64_t us) {
        state.issued.fetch_add(static_cast<uint64_t>(count));
        state.queued_ns.fetch_add(us * 1000);
    }
    uint32_t put_gate() {
        uint32_t mark = Progress::mark_of(state);
        state.last_gate.store(mark);
        Progress::note_mark(state);
        return mark;
    }
    void put_mark() { Progress::note_mark(state); }
    // The GPU's part.
    void write(uint32_t value) { static_cast<std::atomic<uint32_t>*>(progress.words())[state.number].store(value); }
};

admission::Verdict launch(bool open, bool ahead, uint32_t operations) {
    admission::Knobs knobs{admission::strict, 100, 50000};
    return admission::admit(knobs, {2, true, open, 10, 1000, 20, operations, ahead});
}

void behind() {
    using admission::Verdict;
    Stream one;
    one.issue(1, 50);
    REQUIRE(!one.progress.gate_is_ahead(one.state));
    uint32_t mark = one.put_gate();
    REQUIRE(one.progress.gate_is_ahead(one.state));
    one.write(Progress::standing(mark));
    REQUIRE(one.progress.gate_is_ahead(one.state));
    one.write(Progress::passed(mark));
    REQUIRE(!one.progress.gate_is_ahead(one.state));
    // The first that comes to a closed gate has one put in front of it; those behind it only as time goes by.
    REQUIRE(launch(false, false, 1) == Verdict::gate && launch(false, true, 1) == Verdict::go);
    REQUIRE(launch(true, false, 1) == Verdict::go);
}

// Behind a gate that has opened the stream may run empty: that is seen at a mark only.
void empty() {
    Stream one;
    uint32_t gate = one.put_gate();
    one.issue(5, 100);
    one.write(Progress::standing(gate));
    REQUIRE(!one.progress.mark_is_ahead(one.state));
    one.put_mark();
    REQUIRE(one.progress.mark_is_ahead(one.state));
    one.issue(5, 100);
    REQUIRE(one.progress.mark_is_ahead(one.state));
    one.write(Progress::passed(gate + 100));
    REQUIRE(!one.progress.mark_is_ahead(one.state) && one.progress.in_flight_us(one.state) == 100);
    one.put_mark();
    one.write(Progress::passed(gate + 200));
    // Nothing lies behind the last one: another would tell no more.
    REQUIRE(one.progress.mark_is_ahead(one.state) && one.progress.in_flight_us(one.state) == 0);
}

void operations() {
    using admission::kMostOperations;
    // However many have been issued before, only those in flight count.
    Stream one;
    for (int round = 0; round < 1000; ++round) {
        one.issue(10, 100);
        one.write(Progress::passed(one.put_gate()));
        one.issue(10, 100);
        REQUIRE(one.progress.operations_in_flight(one.state) <= kMostOperations);
    }
    // Behind a gate that nobody passes they add up, and a launch waits.
    uint32_t mark = one.put_gate();
    one.write(Progress::standing(mark));
    uint32_t queued = 0;
    while (one.progress.operations_in_flight(one.state) <= kMostOperations) {
        one.issue(1, 10);
        if (queued % 10 == 0) one.put_gate();
        REQUIRE(++queued < 2 * kMostOperations);
    }
    REQUIRE(launch(false, true, one.progress.operations_in_flight(one.state)) == admission::Verdict::wait);
    // It has passed them all.
    one.write(Progress::passed(one.put_gate()));
    REQUIRE(one.progress.operations_in_flight(one.state) < kMostOperations);
}

int main(int, char** argv) {
    if (!strcmp(argv[1], "behind")) behind();
    if (!strcmp(argv[1], "empty")) empty();
    if (!strcmp(argv[1], "operations")) operations();
    return 0;
}
