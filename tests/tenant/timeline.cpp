// What the watcher's looks become in the ring (native/tenant/timeline.h): `timeline gates` or `bursts`.
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

}  // namespace

int main(int, char** arguments) {
    auto* slot = new wire::Slot{};
    strcmp(arguments[1], "gates") == 0 ? gates(*slot) : bursts(*slot);
    delete slot;
    return 0;
}
