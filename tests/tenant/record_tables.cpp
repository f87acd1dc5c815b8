// What the launch path of a recorded job writes and the recorder's thread reads (native/tenant/record/tables.h).
#include <memory>
#include <thread>

#include "../require.h"
#include "tenant/record/tables.h"

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

}  // namespace

int main() {
    a_retired_key_is_new_again_and_the_old_entry_stays();
    keys_of_one_place_are_told_apart_until_it_is_full();
    a_ring_keeps_order_and_refuses_when_it_is_full();
    every_item_of_several_writers_arrives_once();
    return 0;
}
