// What the watcher's looks become in the ring (native/tenant/timeline.h): `timeline gates`, `bursts` or `again`.
#include "tenant/timeline.h"

#include <cstring>
#include <new>
#include <vector>

#include "../require.h"

using namespace tenant::timeline;

namespace {

struct Noted {
    uint64_t event, begin_ns, end_ns, value, why;

    bool operator==(const Noted& other) const {
        return event == other.event && begin_ns == other.begin_ns && end_ns == other.end_ns && value == other.value &&
               why == other.why;
    }
};

std::vector<Noted> noted(const Ring& ring) {
    std::vector<Noted> found;
    for (uint64_t i = 0; i < ring.count.load(); ++i) {
        const Entry& one = ring.entries[i];
        uint64_t what = one.what.load();
        found.push_back({what & 0xff, one.begin_ns.load(), one.end_ns.load(), one.value.load(), what >> 16 & 0xff});
    }
    return found;
}

constexpr auto kGate = static_cast<uint64_t>(Event::gate), kBurst = static_cast<uint64_t>(Event::burst);

// A gate that stays closed for another reason is another interval; one that is seen closed again is none.
void gates(wire::Slot& slot) {
    begin(slot, 64);
    const Ring& ring = *on.load();
    saw_gate(0, true, Closed::by_higher_class, 100);
    saw_gate(0, true, Closed::by_higher_class, 150);
    saw_gate(0, true, Closed::by_equal, 200);
    saw_gate(0, false, {}, 300);
    saw_gate(0, false, {}, 350);
    saw_gate(0, true, Closed::over_rate, 400);
    finish(slot, 500);
    REQUIRE(
        (noted(ring) == std::vector<Noted>{{kGate, 100, 200, 0, 1}, {kGate, 200, 300, 0, 2}, {kGate, 400, 500, 0, 4}}));
}

// Each has the operations that were launched since the one before.
void bursts(wire::Slot& slot) {
    slot.gpus[0].figures.kernels.store(3);
    note_launched(slot, 0);
    begin(slot, 64);
    const Ring& ring = *on.load();
    slot.gpus[0].figures.kernels.store(8);
    saw_burst(slot, 0, 100, 200);
    slot.gpus[0].figures.copies.store(2);
    saw_burst(slot, 0, 300, 250);
    REQUIRE((noted(ring) == std::vector<Noted>{{kBurst, 100, 200, 5, 0}, {kBurst, 300, 300, 2, 0}}));
}

// What lasts on one GPU, and in one lane, has nothing to do with another; and a second recording begins with nothing.
void again(wire::Slot& slot) {
    auto gpu_and_lane = [](const Ring& ring, uint64_t number) {
        uint64_t what = ring.entries[number].what.load();
        return std::vector<uint64_t>{what >> 8 & 0xff, what >> 24 & 0xff};
    };
    constexpr auto kTurn = static_cast<uint64_t>(Event::turn), kSlice = static_cast<uint64_t>(Event::slice);
    begin(slot, 64);
    const Ring& ring = *on.load();
    REQUIRE(slot.timeline.load() != 0);
    saw_turn(0, true, 100);
    saw_turn(1, true, 150);
    saw_turn(0, true, 160);
    tenant::lane_of_thread = 2;
    saw_turn(1, true, 170);
    saw_gate(1, true, Closed::by_policy, 180);
    tenant::lane_of_thread = 0;
    saw_turn(1, false, 200);
    saw_slice(30, true, 210);
    saw_slice(30, true, 220);
    saw_slice(30, false, 230);
    finish(slot, 300);
    REQUIRE((noted(ring) == std::vector<Noted>{{kTurn, 150, 200, 0, 0},
                                               {kSlice, 210, 230, 30, 1},
                                               {kTurn, 100, 300, 0, 0},
                                               {kGate, 180, 300, 0, 3},
                                               {kTurn, 170, 300, 0, 0},
                                               {kSlice, 230, 300, 30, 0}}));
    REQUIRE((gpu_and_lane(ring, 0) == std::vector<uint64_t>{1, 0}));
    REQUIRE((gpu_and_lane(ring, 3) == std::vector<uint64_t>{1, 2}));
    REQUIRE(slot.timeline.load() == 0 && !is_on());
    saw_turn(0, true, 350);
    saw_gate(0, true, Closed::by_equal, 350);
    REQUIRE(ring.count.load() == 6);
    begin(slot, 64);
    REQUIRE(&ring == on.load() && ring.count.load() == 0 && ring.entries[0].sequence.load() == 0);
    saw_turn(0, true, 400);
    begin(slot, 64);  // it is on already
    slot.timeline.store(0);
    show(slot);
    REQUIRE(slot.timeline.load() != 0);
    finish(slot, 500);
    REQUIRE((noted(ring) == std::vector<Noted>{{kTurn, 400, 500, 0, 0}}));
    show(slot);
    REQUIRE(slot.timeline.load() == 0);
    // More than there is room for: the newest is where the oldest was.
    begin(slot, 64);
    for (uint64_t i = 0; i < ring.capacity + 3; ++i) note(Event::copy, 0, i, i + 1);
    REQUIRE(ring.entries[2].sequence.load() == ring.capacity + 3 &&
            ring.entries[2].begin_ns.load() == ring.capacity + 2);
    REQUIRE(ring.entries[3].sequence.load() == 4);
    finish(slot, 600);
}

}  // namespace

int main(int, char** arguments) {
    auto* slot = new wire::Slot{};
    if (!strcmp(arguments[1], "gates")) gates(*slot);
    if (!strcmp(arguments[1], "bursts")) bursts(*slot);
    if (!strcmp(arguments[1], "again")) again(*slot);
    delete slot;
    return 0;
}
