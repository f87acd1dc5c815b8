// What is known of a stream from the marks that the GPU writes: `progress behind`, `empty`, `operations`, `copies`,
// `words` or `none`.
// Status 0, or the line that does not hold.
#include "tenant/progress.h"

#include <cstring>

#include "../require.h"
#include "admission/admission.h"

using tenant::Progress;
using tenant::StreamState;

tenant::DriverCalls tenant::driver;

CUresult put = CUDA_SUCCESS;  // what the driver says when something is put into a stream
CUresult CUDAAPI put_into_stream(CUstream, unsigned int, CUstreamBatchMemOpParams*, unsigned int) { return put; }

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

// Into one of so many linked streams, of which this much is in flight.
admission::Verdict launch_linked(uint32_t streams, float in_flight_us, float operation_us, bool has_company = true) {
    admission::Knobs knobs{admission::strict, 100, 50000};
    return admission::admit(knobs, {2, has_company, true, 10, in_flight_us, operation_us, 1, false, streams});
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

// What linked streams have in flight is little, all of them together; the next kernel is there when a long one ends.
void linked() {
    using admission::Verdict;
    REQUIRE(launch_linked(0, 49000, 20) == Verdict::go && launch_linked(0, 51000, 20) == Verdict::wait);
    REQUIRE(launch_linked(2, 490, 20) == Verdict::go && launch_linked(2, 510, 20) == Verdict::wait);
    REQUIRE(launch_linked(8, 120, 20) == Verdict::go && launch_linked(8, 130, 20) == Verdict::wait);
    REQUIRE(launch_linked(8, 1900, 1000) == Verdict::gate && launch_linked(8, 2100, 1000) == Verdict::wait);
    REQUIRE(launch_linked(2, 49000, 40000) == Verdict::gate && launch_linked(2, 51000, 40000) == Verdict::wait);
    // Of a kernel that was never timed nothing is known.
    REQUIRE(launch_linked(2, 490, admission::kUnknown) == Verdict::gate);
    REQUIRE(launch_linked(2, 510, admission::kUnknown) == Verdict::wait);
    // Beside nobody a tenant queues what it wants.
    REQUIRE(launch_linked(2, 40000, 20, false) == Verdict::go);
}

// Whether a copy uses the bus: by the mark behind it, whatever was put into the stream after that; without one until
// the stream has run empty.
void copies() {
    tenant::driver.cuStreamBatchMemOp_v2 = put_into_stream;
    Stream one;
    auto uses_bus = [&] { return one.progress.uses_bus(one.state); };
    auto copy = [&] {
        one.state.bus_calls.fetch_add(1);
        REQUIRE(uses_bus());
        one.issue(1, 0);
        if (!Progress::mark_copy(one.state)) one.state.bus_mark.store(0);
        one.state.bus_issued.store(one.state.issued.load());
        one.state.bus_calls.fetch_sub(1);
        return Progress::mark_of(one.state);
    };
    REQUIRE(!uses_bus());
    uint32_t first = copy();
    one.issue(10, 100);
    REQUIRE(uses_bus());
    one.write(Progress::passed(first - 1));
    REQUIRE(uses_bus());
    one.write(Progress::passed(first));
    REQUIRE(!uses_bus());
    // For good, though marks wrap around.
    one.issue(1, uint64_t{1} << 29);
    REQUIRE(!uses_bus());
    uint32_t second = copy();
    copy();
    one.write(Progress::passed(second));
    REQUIRE(uses_bus());
    one.write(Progress::passed(Progress::mark_of(one.state)));
    REQUIRE(!uses_bus());
    put = CUDA_ERROR_INVALID_VALUE;
    copy();
    one.issue(1, 10);
    one.write(Progress::passed(Progress::mark_of(one.state)));
    REQUIRE(uses_bus());
    one.state.finished = one.state.issued.load();
    REQUIRE(!uses_bus());
}

// The words of graphs: each is one graph's at a time, and begins as of one that does not stand.
void words() {
    Stream one;
    Progress& progress = one.progress;
    auto* all = static_cast<std::atomic<uint32_t>*>(progress.words());
    uint32_t first = progress.take_graph_word(), second = progress.take_graph_word();
    REQUIRE(first && second && first != second && !progress.graph_stands(first));
    all[first].store(1);  // the GPU's part
    REQUIRE(progress.graph_stands(first) && !progress.graph_stands(second));
    // Its exec is destroyed meanwhile.
    progress.free_graph_word(first);
    progress.free_graph_word(0);
    REQUIRE(progress.take_graph_word() == first && !progress.graph_stands(first));
    uint32_t taken = 2, last = 0;
    while (uint32_t word = progress.take_graph_word()) REQUIRE(++taken < 4096 && (last = word) < 4096);
    REQUIRE(taken > 1000 && last > tenant::StreamTable::kMostStreams);
    progress.free_graph_word(second);
    REQUIRE(progress.take_graph_word() == second && !progress.take_graph_word());
    // Nor does a stream stand that has the word of one that did.
    one.issue(3, 70);
    one.write(Progress::standing(Progress::mark_of(one.state), true));
    REQUIRE(progress.stands_at_gate(one.state) && progress.is_among_copies(one.state));
    one.issue(1, 30);
    progress.begin(one.state);
    REQUIRE(!progress.stands_at_gate(one.state) && !progress.is_among_copies(one.state));
    REQUIRE(progress.in_flight_us(one.state) == 0);
}

// A stream whose word the driver would not map: nothing is known of it, and nothing waits.
void none() {
    Stream one;
    one.write(Progress::standing(0, true));
    one.state.progress_word = 0;
    one.issue(10000, 100);
    one.put_gate();
    REQUIRE(!one.progress.stands_at_gate(one.state) && !one.progress.is_among_copies(one.state));
    REQUIRE(one.progress.in_flight_us(one.state) == 0 && one.progress.operations_in_flight(one.state) == 0);
    REQUIRE(!one.progress.gate_is_ahead(one.state));
}

int main(int, char** argv) {
    if (!strcmp(argv[1], "behind")) behind();
    if (!strcmp(argv[1], "empty")) empty();
    if (!strcmp(argv[1], "operations")) operations();
    if (!strcmp(argv[1], "linked")) linked();
    if (!strcmp(argv[1], "copies")) copies();
    if (!strcmp(argv[1], "words")) words();
    if (!strcmp(argv[1], "none")) none();
    return 0;
}
