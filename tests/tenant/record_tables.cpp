// What the launch path of a recorded job writes and the recorder's thread reads (native/tenant/record/tables.h), and
// the times that the thread puts into the file (native/tenant/record/trace_file.h).
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "../require.h"
#include "tenant/record/tables.h"
#include "tenant/record/trace_file.h"

namespace tenant {
DriverCalls driver;
}

namespace {

struct Entry {
    std::atomic<uint64_t> key{0};
    int number = 0;
};

void a_retired_key_is_new_again_and_the_old_entry_stays() {
    auto table = std::make_unique<tenant::KeyedTable<Entry, 128>>();
    auto first = table->find_or_enter(70);
    REQUIRE(first.entry && first.is_new);
    first.entry->number = 7;
    REQUIRE(table->find_or_enter(70).entry == first.entry && !table->find_or_enter(70).is_new);
    table->retire(71);
    REQUIRE(!table->find_or_enter(70).is_new);
    table->retire(70);
    auto second = table->find_or_enter(70);
    REQUIRE(second.is_new && second.entry != first.entry && first.entry->number == 7);
    // These stand for something else in the table.
    for (uint64_t key : {0, 1}) {
        auto found = table->find_or_enter(key);
        REQUIRE(found.is_new && table->find_or_enter(key).entry == found.entry);
    }
}

void keys_of_one_place_are_told_apart_until_it_is_full() {
    auto table = std::make_unique<tenant::KeyedTable<Entry, 128>>();
    Entry* seen[64];
    for (int i = 0; i < 64; ++i) {
        auto found = table->find_or_enter(2 + 128 * i);
        REQUIRE(found.entry && found.is_new);
        seen[i] = found.entry;
    }
    for (int i = 0; i < 64; ++i) REQUIRE(table->find_or_enter(2 + 128 * i).entry == seen[i]);
    REQUIRE(!table->find_or_enter(2 + 128 * 64).entry);
    REQUIRE(table->find_or_enter(100).is_new);
}

void a_ring_keeps_order_and_refuses_when_it_is_full() {
    auto ring = std::make_unique<tenant::Ring<int, 4>>();
    REQUIRE(!ring->front());
    for (int round = 0; round < 3; ++round) {
        for (int i = 0; i < 4; ++i) REQUIRE(ring->put(i));
        REQUIRE(!ring->put(4));
        for (int i = 0; i < 4; ++i) {
            REQUIRE(ring->front() && *ring->front() == i);
            ring->drop_front();
        }
        REQUIRE(!ring->front());
    }
}

void every_item_of_several_writers_arrives_once() {
    constexpr int kEach = 20000;
    auto ring = std::make_unique<tenant::Ring<int, 64>>();
    std::thread writers[2];
    for (int w = 0; w < 2; ++w)
        writers[w] = std::thread([&, w] {
            for (int i = 0; i < kEach; ++i)
                while (!ring->put(w * kEach + i)) std::this_thread::yield();
        });
    int next[2] = {0, 0};
    for (int read = 0; read < 2 * kEach;) {
        const int* item = ring->front();
        if (!item) {
            std::this_thread::yield();
            continue;
        }
        int& expected = next[*item / kEach];
        REQUIRE(*item % kEach == expected);
        ++expected;
        ++read;
        ring->drop_front();
    }
    for (std::thread& writer : writers) writer.join();
    REQUIRE(!ring->front());
}

// Beside a map: also where many addresses want one place, and where there is no place left.
void sizes_are_found_under_their_addresses() {
    auto sizes = std::make_unique<tenant::AllocationSizes>();
    std::map<uint64_t, uint64_t> expected;
    std::mt19937_64 random(1);
    auto take_one = [&] {
        auto at = expected.lower_bound(random() % 100000 << 9);
        if (at == expected.end()) at = expected.begin();
        REQUIRE(sizes->take(at->first) == at->second && sizes->take(at->first) == 0);
        expected.erase(at);
    };
    for (int round = 0; round < 3; ++round) {
        for (int i = 0; i < 120000; ++i) {
            if (!expected.empty() && (random() % 3 == 0 || expected.size() == 49152)) take_one();
            uint64_t address = (1 + random() % 100000) << 9;
            sizes->enter(address, i + 1);
            expected[address] = i + 1;
        }
        while (!expected.empty()) take_one();
    }
    for (uint64_t address = 1; address <= 70000; ++address) sizes->enter(address << 9, 5);
    uint64_t known = 0;
    for (uint64_t address = 1; address <= 70000; ++address) known += sizes->take(address << 9) == 5;
    REQUIRE(known > 40000 && known < 65536 && sizes->take(0) == 0);
}

// Better times count for more than worse ones, in whatever order they come.
void a_time_is_as_good_as_the_best_kind_of_look() {
    using tenant::Trust;
    tenant::Timing timing;
    timing.learn(900, Trust::first);
    REQUIRE(timing.samples == 1 && timing.us == 900);
    timing.learn(50, Trust::starved);
    REQUIRE(timing.samples == 1 && timing.us == 50 && timing.min_us == 50 && timing.max_us == 50);
    timing.learn(66, Trust::starved);  // rises slowly, and falls at once
    REQUIRE(timing.samples == 2 && timing.us == 51 && timing.max_us == 66);
    timing.learn(40, Trust::starved);
    REQUIRE(timing.us == 40 && timing.min_us == 40);
    timing.learn(900, Trust::first);
    REQUIRE(timing.samples == 3 && timing.us == 40);
    timing.learn(44, Trust::backed_up);
    timing.learn(46, Trust::backed_up);
    timing.learn(10, Trust::starved);
    REQUIRE(timing.samples == 2 && timing.us == 45 && timing.min_us == 44 && timing.max_us == 46);
}

// Events by the context that they are of; a context's end takes them along.
std::map<CUevent, CUcontext> events;
CUcontext current;
CUresult exchange_mode(CUstreamCaptureMode*) { return CUDA_SUCCESS; }
CUresult create_event(CUevent* out, unsigned int) {
    static uint64_t last = 0;
    events[*out = reinterpret_cast<CUevent>(++last)] = current;
    return CUDA_SUCCESS;
}
CUresult destroy_event(CUevent event) {
    REQUIRE(events.erase(event) == 1);
    return CUDA_SUCCESS;
}
CUresult record_event(CUevent event, CUstream) {
    REQUIRE(events.at(event) == current);
    return CUDA_SUCCESS;
}
CUresult query_event(CUevent event) { return events.count(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; }

void a_second_context_is_timed_too_and_one_that_ends_takes_its_events_along() {
    tenant::driver.cuThreadExchangeStreamCaptureMode = exchange_mode;
    tenant::driver.cuEventCreate = create_event;
    tenant::driver.cuEventDestroy_v2 = destroy_event;
    tenant::driver.cuEventRecord = record_event;
    tenant::driver.cuEventQuery = query_event;
    auto timer = std::make_unique<tenant::OpTimer>();
    int owner = 0;
    CUcontext const first = reinterpret_cast<CUcontext>(0x100), second = reinterpret_cast<CUcontext>(0x200);
    auto time_in = [&](CUcontext context) {
        int timed = 0;
        current = context;
        std::vector<tenant::OpTimer::Sample*> taken;
        for (int i = 0; i < 1000; ++i)
            if (auto* sample = timer->begin(&owner, context, nullptr)) taken.push_back(sample);
        for (auto* sample : taken) {
            tenant::OpTimer::end(sample, nullptr, false, false, true);
            ++timed;
        }
        return timed;
    };
    int all = time_in(first);
    REQUIRE(all >= 200 && time_in(second) == 0);
    timer->lend_to(second);
    int lent = time_in(second);
    REQUIRE(lent > all / 8 && lent < all / 2);
    // No more than a part, however often it asks; and the first one goes on.
    for (int i = 0; i < 8; ++i) timer->lend_to(second);
    REQUIRE(time_in(second) < all / 2 && time_in(first) >= all / 2);
    timer->forget_context(second);
    for (auto at = events.begin(); at != events.end();) at = at->second == second ? events.erase(at) : std::next(at);
    REQUIRE(time_in(first) == all);
}

// A thousand nanoseconds have no code of their own: what one gap is too short, a later one makes up for.
void the_errors_of_short_gaps_do_not_add_up() {
    constexpr uint64_t kCalls = 30000, kApartNs = 1000, kEpochNs = 5000;
    auto coder = std::make_unique<tenant::OperationCoder>();
    for (uint64_t i = 0; i < kCalls; ++i) {
        tenant::TraceOperation call{};
        call.time_ns = kEpochNs + i * kApartNs;
        call.shape = 1;
        coder->add(call);
    }
    tenant::Bytes body;
    coder->write(body, kEpochNs);
    // Calls that did not wait and no long gap: the body ends with a code for each call.
    REQUIRE(!body.failed() && body.size() > kCalls && body.data()[0] == 0);
    const uint8_t* codes = body.data() + body.size() - kCalls;
    uint64_t told_ns = 0;
    for (uint64_t i = 0; i < kCalls; ++i) {
        REQUIRE(codes[i] != tenant::GapCode::kLong);
        told_ns += tenant::GapCode::meaning(codes[i]);
        REQUIRE(told_ns + 32 > i * kApartNs && told_ns < i * kApartNs + 32);
    }
}

}  // namespace

int main() {
    the_errors_of_short_gaps_do_not_add_up();
    sizes_are_found_under_their_addresses();
    a_time_is_as_good_as_the_best_kind_of_look();
    a_second_context_is_timed_too_and_one_that_ends_takes_its_events_along();
    a_retired_key_is_new_again_and_the_old_entry_stays();
    keys_of_one_place_are_told_apart_until_it_is_full();
    a_ring_keeps_order_and_refuses_when_it_is_full();
    every_item_of_several_writers_arrives_once();
    return 0;
}
