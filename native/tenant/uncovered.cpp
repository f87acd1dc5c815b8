#include "tenant/uncovered.h"

#include <atomic>

#include "tenant/membership.h"
#include "tenant/membership_events.h"

namespace tenant {

namespace {

std::atomic<uint64_t> counts[kUncoveredKinds];

wire::Count& shown(wire::Slot& slot, Uncovered what) {
    switch (what) {
        case Uncovered::unknown_function:
            return slot.unknown_functions;
        case Uncovered::export_table:
            return slot.export_tables;
        case Uncovered::ungated_graph:
            return slot.ungated_graphs;
        case Uncovered::checkpoint:
            break;
    }
    return slot.checkpoints;
}

void show_all(wire::Segment&, wire::Slot& slot) {
    for (int i = 0; i < kUncoveredKinds; ++i) shown(slot, static_cast<Uncovered>(i)).store(counts[i].load());
}
LISTEN(AtJoin, MembershipStep::uncovered, show_all)

}  // namespace

void count(Uncovered what) {
    uint64_t now = counts[static_cast<int>(what)].fetch_add(1, std::memory_order_relaxed) + 1;
    Membership* membership = Membership::current_if_joined();
    if (!membership) return;
    // Another thread may have shown a later count already.
    wire::Count& there = shown(membership->slot(), what);
    for (uint64_t seen = there.load(); seen < now && !there.compare_exchange_weak(seen, now);) continue;
}

}  // namespace tenant
