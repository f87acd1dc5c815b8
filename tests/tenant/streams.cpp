// streams CASE: the table of streams, as threads that launch and a thread that makes and destroys streams use it.
#include "tenant/streams.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "../require.h"

namespace tenant {

// How many places a look-up passes.
struct StreamTableInside {
    static uint32_t steps(const StreamTable& table, StreamKey key) {
        uint32_t passed = 1;
        for (uint32_t i = StreamTable::home_of(key);; i = StreamTable::next(i), ++passed) {
            StreamState* state = table.places_[i].load();
            if (!state || state->key.load() == key) return passed;
        }
    }
};

}  // namespace tenant

namespace {

using tenant::StreamKey;
using tenant::StreamState;
using tenant::StreamTable;

// A stream's handle, context and GPU follow from its key here, so that a mixture of two is found out.
StreamKey key_of(uint64_t number) { return 0x7f0000000000 + number * 64; }
CUstream handle_of(StreamKey key) { return reinterpret_cast<CUstream>(key); }
CUcontext context_of(StreamKey key) { return reinterpret_cast<CUcontext>(key + 32); }
int gpu_of(StreamKey key) { return static_cast<int>(key / 64 % 16); }
StreamState* enter(StreamTable& table, StreamKey key) {
    return table.enter(key, handle_of(key), context_of(key), gpu_of(key));
}
void check_whole(const StreamState& state, StreamKey key) {
    REQUIRE(state.handle == handle_of(key));
    REQUIRE(state.context == context_of(key));
    REQUIRE(state.gpu == gpu_of(key));
}

// However many streams have come and gone, a look-up passes as few places as in a table that never had others.
void churn() {
    static StreamTable table;
    constexpr int kLiving = 1000;
    for (int i = 0; i < kLiving; ++i) REQUIRE(enter(table, key_of(i)));
    for (int i = 0; i < 200000; ++i) {
        StreamKey key = key_of(kLiving + i);
        REQUIRE(enter(table, key));
        table.remove(key);
        REQUIRE(!table.find(key));
    }
    uint64_t steps = 0;
    for (int i = 0; i < kLiving; ++i) {
        StreamState* state = table.find(key_of(i));
        REQUIRE(state);
        check_whole(*state, key_of(i));
        // One that is there, and one that is not.
        steps += tenant::StreamTableInside::steps(table, key_of(i));
        steps += tenant::StreamTableInside::steps(table, key_of(1000000 + i));
    }
    REQUIRE(steps < 4 * kLiving);
    int counted = 0;
    table.for_each([&](StreamState&) { ++counted; });
    REQUIRE(counted == kLiving);
}

// A table of many, in every order: what remains is found, what was removed is not.
void removal() {
    static StreamTable table;
    srand(1);
    std::vector<bool> is_there(3000);
    for (int i = 0; i < 200000; ++i) {
        uint64_t number = static_cast<uint64_t>(rand()) % is_there.size();
        if (is_there[number])
            table.remove(key_of(number));
        else
            REQUIRE(enter(table, key_of(number)));
        is_there[number] = !is_there[number];
        if (i % 1000) continue;
        for (uint64_t each = 0; each < is_there.size(); ++each) REQUIRE(!table.find(key_of(each)) == !is_there[each]);
    }
    uint32_t before = table.generation();
    table.remove_if([](StreamState& state) { return state.gpu != 3; });
    for (uint64_t each = 0; each < is_there.size(); ++each)
        REQUIRE(!table.find(key_of(each)) == !(is_there[each] && gpu_of(key_of(each)) == 3));
    table.remove_if([](StreamState&) { return true; });
    REQUIRE(table.generation() != before);
    table.for_each([](StreamState&) { REQUIRE(false); });
}

void full() {
    static StreamTable table;
    uint64_t entered = 0;
    while (enter(table, key_of(entered))) ++entered;
    REQUIRE(entered == StreamTable::kPlaces / 4 * 3);
    REQUIRE(!table.find(key_of(entered)));
    table.remove(key_of(0));
    REQUIRE(enter(table, key_of(entered)));
}

void kinds() {
    auto* context = reinterpret_cast<CUcontext>(0x7fff12345670);
    StreamKey legacy = tenant::key_of_default_stream(context, 1);
    StreamKey thread = tenant::key_of_default_stream(context, 2);
    StreamKey last = tenant::key_of_default_stream(context, tenant::kDestroyed - 1);
    StreamKey plain = tenant::key_of_stream(reinterpret_cast<CUstream>(context));
    REQUIRE(legacy != thread && thread != last && legacy != plain && thread != plain);
    static StreamTable table;
    REQUIRE(!table.enter(legacy, nullptr, context, 0)->is_per_thread());
    REQUIRE(table.enter(thread, nullptr, context, 0)->is_per_thread());
    REQUIRE(table.enter(last, nullptr, context, 0)->is_per_thread());
    StreamState* destroyed = table.enter(plain, nullptr, context, 0);
    REQUIRE(!destroyed->is_known_by_event());
    // A destroyed stream's handle may be another's at once.
    StreamKey after = tenant::key_of_destroyed_stream(reinterpret_cast<CUevent>(context));
    uint32_t generation = table.generation();
    table.rename(*destroyed, after);
    REQUIRE(destroyed->is_destroyed() && destroyed->is_known_by_event() && !destroyed->is_per_thread());
    REQUIRE(after != last && !table.find(plain) && table.find(after) == destroyed && table.generation() != generation);
    REQUIRE(table.enter(plain, nullptr, context, 0) != destroyed && !table.find(thread)->is_destroyed());
    int count = 0;
    table.for_each([&](StreamState&) { ++count; });
    table.remove(after);
    REQUIRE(count == 5 && !table.find(after) && table.find(plain));
    // Handles that cannot be told apart are not watched.
    REQUIRE(tenant::key_of_stream(reinterpret_cast<CUstream>(tenant::kDefaultStream | 64)) == tenant::kNoStream);
    auto* far_away = reinterpret_cast<CUcontext>(uint64_t{1} << tenant::kContextBits);
    REQUIRE(tenant::key_of_default_stream(far_away, 1) == tenant::kNoStream);
}

// Two threads use streams for the first time at the same moment, while a third destroys others and recycles what they
// had. Whoever finds a stream finds all of it.
void first_use() {
    static StreamTable table;
    static std::mutex lock;
    constexpr int kRounds = 3000, kStreams = 8;
    std::atomic<int> round{0}, ready{0};
    auto use = [&] {
        for (int now = 1; now <= kRounds; ++now) {
            ready.fetch_add(1);
            while (round.load() < now) std::this_thread::yield();
            for (int i = 0; i < kStreams; ++i) {
                StreamKey key = key_of(static_cast<uint64_t>(now) * kStreams + i);
                StreamState* state = table.find(key);
                if (!state) {
                    std::lock_guard<std::mutex> locked(lock);
                    state = table.find(key);
                    if (!state) state = enter(table, key);
                }
                REQUIRE(state);
                check_whole(*state, key);
                state->issued.fetch_add(1);
            }
        }
    };
    std::thread first(use), second(use);
    for (int now = 1; now <= kRounds; ++now) {
        while (ready.load() < 2 * now) std::this_thread::yield();
        round.store(now);
        // Those of the last round, which both have used.
        for (int i = 0; now > 1 && i < kStreams; ++i) {
            StreamKey key = key_of(static_cast<uint64_t>(now - 1) * kStreams + i);
            std::lock_guard<std::mutex> locked(lock);
            StreamState* state = table.find(key);
            REQUIRE(state && state->issued.load() == 2);
            table.remove(key);
        }
    }
    first.join();
    second.join();
}

// A launch may hold the state of a stream that was destroyed, and that serves another by now: what it reads with a key
// is that stream's, or of one that came later, never of one before.
void recycled() {
    static StreamTable table;
    StreamState* state = enter(table, key_of(0));
    std::atomic<bool> over{false};
    uint64_t seen = 0;
    std::thread reader([&] {
        while (!over.load()) {
            StreamKey key = state->key.load(std::memory_order_acquire);
            if (key == tenant::kNoStream) continue;
            REQUIRE(reinterpret_cast<uintptr_t>(static_cast<CUstream>(state->handle)) >= key);
            REQUIRE(reinterpret_cast<uintptr_t>(static_cast<CUcontext>(state->context)) >= key);
            ++seen;
        }
    });
    for (uint64_t i = 0; i < 300000; ++i) {
        table.remove(key_of(i));
        REQUIRE(enter(table, key_of(i + 1)) == state);
        if (i % 1000 == 0) std::this_thread::yield();
    }
    over.store(true);
    reader.join();
    REQUIRE(seen > 0);
}

// A state that serves another stream has nothing of the one before: not its gate, which is another GPU's or context's,
// nor what of its work had ended. Only what the GPU's word goes on from stays.
void renewed() {
    static StreamTable table;
    StreamState* state = enter(table, key_of(0));
    uint32_t number = state->number;
    state->gate = 1 << 20;
    state->progress_word = 2 << 20;
    state->entered.store(6);
    state->issued.store(5);
    state->finished = 3;
    state->since_gate_us.store(70);
    state->queued_ns.store(9000);
    state->done.store(4);
    state->among_copies.store(true);
    state->bus_issued.store(5);
    state->bus_mark.store(8);
    state->bus_done = 5;
    state->was.store(state);
    state->entered_before = 6;
    for (auto& place : state->issued_at) place.count.store(5);
    state->launched.operations.store(1);
    state->launched.sms.store(2);
    state->launched.us.store(3);
    state->last_work.store(reinterpret_cast<CUevent>(64));
    table.remove(key_of(0));
    REQUIRE(enter(table, key_of(1)) == state && state->number == number);
    REQUIRE(state->gate == 0 && state->progress_word == 0);
    REQUIRE(state->issued.load() == 0 && state->finished == 0 && !state->is_being_called());
    REQUIRE(state->since_gate_us.load() == 0 && !state->last_work.load() && state->queued_ns.load() == 9000);
    REQUIRE(state->done.load() == 0 && !state->among_copies.load() && !state->was.load());
    REQUIRE(state->bus_issued.load() == 0 && state->bus_mark.load() == 0 && state->bus_done == 0);
    REQUIRE(state->entered_before == 0);
    for (auto& place : state->issued_at) REQUIRE(place.count.load() == 0);
    REQUIRE(!state->launched.operations.load() && !state->launched.sms.load() && !state->launched.us.load());
    // Two at once have words of their own.
    REQUIRE(enter(table, key_of(2))->number != number);
}

}  // namespace

int main(int argc, char** argv) {
    const char* name = argc > 1 ? argv[1] : "";
    if (!strcmp(name, "churn"))
        churn();
    else if (!strcmp(name, "removal"))
        removal();
    else if (!strcmp(name, "full"))
        full();
    else if (!strcmp(name, "kinds"))
        kinds();
    else if (!strcmp(name, "first_use"))
        first_use();
    else if (!strcmp(name, "recycled"))
        recycled();
    else if (!strcmp(name, "renewed"))
        renewed();
    else
        return 2;
    return 0;
}
