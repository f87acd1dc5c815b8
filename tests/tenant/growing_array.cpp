// GrowingArray against the C++ library's vector; and where there is no memory, it stays as it was.
#include "tenant/growing_array.h"

#include <cstdint>
#include <random>
#include <vector>

#include "../require.h"

namespace {

using Array = tenant::GrowingArray<uint64_t>;

void agree(Array& array, const std::vector<uint64_t>& expected) {
    REQUIRE(array.count() == expected.size());
    REQUIRE(std::equal(array.begin(), array.end(), expected.begin()));
}

void walk(int steps) {
    Array array;
    std::vector<uint64_t> expected;
    std::mt19937_64 random(1);
    for (int step = 0; step < steps; ++step) {
        uint64_t value = random();
        auto at = static_cast<std::ptrdiff_t>(random() % (expected.size() + 1));
        const uint64_t more[3] = {value, value + 1, value + 2};
        switch (random() % 4) {
            case 0:
                REQUIRE(array.insert(static_cast<size_t>(at), value));
                expected.insert(expected.begin() + at, value);
                break;
            case 1:
                REQUIRE(array.add(value));
                expected.push_back(value);
                break;
            case 2:
                REQUIRE(array.add(more, 3));
                expected.insert(expected.end(), more, more + 3);
                break;
            default:
                if (static_cast<size_t>(at) == expected.size()) break;
                array.remove(static_cast<size_t>(at));
                expected.erase(expected.begin() + at);
        }
        agree(array, expected);
    }
    array.clear();
    agree(array, {});
    array.discard();
    agree(array, {});
}

void stays_as_it_was() {
    Array array;
    std::vector<uint64_t> expected = {1, 2, 3};
    for (uint64_t value : expected) REQUIRE(array.add(value));
    REQUIRE(!array.reserve(SIZE_MAX / sizeof(uint64_t) / 2));
    agree(array, expected);
    array.discard();
}

}  // namespace

int main() {
    walk(3000);
    stays_as_it_was();
}
