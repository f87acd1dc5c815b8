#include "tenant/uncovered.h"

#include <atomic>

#include "tenant/membership.h"

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

}  // namespace

void count(Uncovered what) {
    counts[static_cast<int>(what)].fetch_add(1, std::memory_order_relaxed);
    if (Membership* membership = Membership::current_if_joined()) show_uncovered(membership->slot());
}

void show_uncovered(wire::Slot& slot) {
    for (int i = 0; i < kUncoveredKinds; ++i) shown(slot, static_cast<Uncovered>(i)).store(counts[i].load());
}

}  // namespace tenant
