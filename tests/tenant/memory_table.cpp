// MemoryTable against a map of the C++ library, through entries that come, go, and come again at the same places.
#include "tenant/memory/table.h"

#include <map>
#include <random>

#include "../require.h"

namespace {

using Table = tenant::MemoryTable<uint64_t>;

void agree(Table& table, const std::map<uint64_t, uint64_t>& expected, uint64_t keys) {
    REQUIRE(table.count() == expected.size());
    for (uint64_t key = 0; key < keys; ++key) {
        uint64_t* there = table.find(key << 12);
        auto known = expected.find(key << 12);
        REQUIRE((there != nullptr) == (known != expected.end()) && (!there || *there == known->second));
    }
    std::map<uint64_t, uint64_t> seen;
    table.each([&](uint64_t key, uint64_t value) { REQUIRE(seen.emplace(key, value).second); });
    REQUIRE(seen == expected);
}

void walk(uint64_t keys, int steps) {
    Table table;
    std::map<uint64_t, uint64_t> expected;
    std::mt19937_64 random(keys);
    for (int step = 0; step < steps; ++step) {
        uint64_t key = random() % keys << 12, value = random(), out = 0;
        if (random() % 2) {
            REQUIRE(*table.enter(key, value) == value);
            expected[key] = value;
        } else {
            bool known = expected.count(key);
            REQUIRE(table.take(key, &out) == known && (!known || out == expected[key]));
            expected.erase(key);
        }
        if (step % 97 == 0) {
            table.remove_if([](uint64_t, uint64_t value) { return value % 8 == 0; });
            for (auto it = expected.begin(); it != expected.end();)
                it = it->second % 8 == 0 ? expected.erase(it) : std::next(it);
        }
        if (step % 31 == 0) agree(table, expected, keys);
    }
    agree(table, expected, keys);
    table.discard();
    agree(table, {}, keys);
}

}  // namespace

int main() {
    for (uint64_t keys : {1, 3, 31, 33, 500}) walk(keys, 5000);
}
