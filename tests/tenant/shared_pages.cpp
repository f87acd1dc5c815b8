// Pages that allocations share (native/tenant/memory/shared_pages.h), beside a driver that has a page from when the
// first allocation of it is made until the last is freed, and may give its address out again amid the call.
#include "tenant/memory/shared_pages.h"

#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "../require.h"

namespace {

using tenant::SharedPages;
constexpr uint64_t kPage = tenant::kMemoryPage, kSmall = 1000;

void last_two_leave_at_once() {
    SharedPages pages;
    REQUIRE(pages.enter(0, kSmall) == kPage && pages.enter(kSmall, kSmall) == 0);
    pages.begin_to_leave(0, kSmall);
    pages.begin_to_leave(kSmall, kSmall);
    REQUIRE(pages.complete(kSmall, kSmall) == 0);
    REQUIRE(pages.complete(0, kSmall) == kPage);
}

void the_address_is_given_out_again() {
    SharedPages pages;
    REQUIRE(pages.enter(0, kSmall) == kPage);
    pages.begin_to_leave(0, kSmall);
    REQUIRE(pages.enter(0, kSmall) == kPage);
    REQUIRE(pages.complete(0, kSmall) == kPage);
    pages.begin_to_leave(0, kSmall);
    REQUIRE(pages.complete(0, kSmall) == kPage);
}

void a_free_that_fails() {
    SharedPages pages;
    REQUIRE(pages.enter(0, kSmall) == kPage);
    pages.begin_to_leave(0, kSmall);
    REQUIRE(pages.stay(0, kSmall) == 0);
    pages.begin_to_leave(0, kSmall);
    REQUIRE(pages.enter(kSmall, kSmall) == kPage);
    REQUIRE(pages.stay(0, kSmall) == kPage);  // they share one
    pages.begin_to_leave(0, kSmall);
    REQUIRE(pages.complete(0, kSmall) == 0);
    pages.begin_to_leave(kSmall, kSmall);
    REQUIRE(pages.complete(kSmall, kSmall) == kPage);
}

void parts_of_pages() {
    SharedPages pages;
    REQUIRE(pages.enter(0, 3 * kPage) == 3 * kPage);
    REQUIRE(pages.enter(4 * kPage + kSmall, 2 * kPage) == 3 * kPage);
    REQUIRE(pages.enter(6 * kPage + 2 * kSmall, kSmall) == 0);
    REQUIRE(pages.enter(4 * kPage, kSmall) == 0);
    REQUIRE(pages.enter(8 * kPage, kPage + kSmall) == 2 * kPage);
    REQUIRE(pages.enter(9 * kPage + kSmall, kPage - kSmall) == 0);
    REQUIRE(pages.enter(12 * kPage, 0) == 0);
    pages.begin_to_leave(4 * kPage + kSmall, 2 * kPage);
    REQUIRE(pages.complete(4 * kPage + kSmall, 2 * kPage) == kPage);
    pages.begin_to_leave(9 * kPage + kSmall, kPage - kSmall);
    REQUIRE(pages.complete(9 * kPage + kSmall, kPage - kSmall) == 0);
    pages.begin_to_leave(8 * kPage, kPage + kSmall);
    REQUIRE(pages.complete(8 * kPage, kPage + kSmall) == 2 * kPage);
    pages.begin_to_leave(0, 3 * kPage);
    REQUIRE(pages.complete(0, 3 * kPage) == 3 * kPage);
}

// Calls in any order, some of which fail: never less is counted than the driver has, and in the end as much.
void walk() {
    SharedPages pages;
    std::mt19937 random(1);
    struct Freeing {
        uint64_t address;
        bool done;
    };
    std::vector<uint64_t> held;
    std::vector<Freeing> freeing;
    std::map<uint64_t, int> driver;  // by page: allocations
    uint64_t counted = 0;
    bool free_places[4][8];
    memset(free_places, true, sizeof free_places);
    auto take_out = [&](auto& from) {
        auto at = from.begin() + random() % from.size();
        auto one = *at;
        from.erase(at);
        return one;
    };
    for (int step = 0; step < 20000; ++step) {
        uint64_t page = random() % 4, place = random() % 8;
        switch (step < 19000 ? random() % 4 : 1 + random() % 3) {
            case 0:
                if (!free_places[page][place]) break;
                free_places[page][place] = false;
                ++driver[page];
                counted += pages.enter(page * kPage + place * kSmall, kSmall);
                held.push_back(page * kPage + place * kSmall);
                break;
            case 1:
                if (held.empty()) break;
                freeing.push_back({take_out(held), false});
                pages.begin_to_leave(freeing.back().address, kSmall);
                break;
            case 2:
                if (freeing.empty()) break;
                if (Freeing& one = freeing[random() % freeing.size()]; !one.done) {
                    one.done = true;
                    uint64_t number = one.address / kPage;
                    if (--driver[number] == 0) driver.erase(number);
                    free_places[number][one.address % kPage / kSmall] = true;
                }
                break;
            case 3:
                if (freeing.empty()) break;
                Freeing one = take_out(freeing);
                counted -= one.done ? pages.complete(one.address, kSmall) : pages.stay(one.address, kSmall);
                if (!one.done) held.push_back(one.address);
        }
        REQUIRE(counted >= driver.size() * kPage);
        if (freeing.empty()) REQUIRE(counted == driver.size() * kPage);
    }
}

}  // namespace

int main() {
    last_two_leave_at_once();
    the_address_is_given_out_again();
    a_free_that_fails();
    parts_of_pages();
    walk();
}
