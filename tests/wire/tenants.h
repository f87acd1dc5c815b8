// Tenants of a segment without CUDA, for the programs beside this file.
#pragma once

#include "wire/clock.h"
#include "wire/gates.h"
#include "wire/segment.h"

namespace {

[[maybe_unused]] int live(wire::Segment& segment) {
    int count = 0;
    for (int i = 0; i < wire::kSlots; ++i) count += wire::is_live(segment.slot(i));
    return count;
}

// A test may be held up for longer than a heartbeat lasts.
[[maybe_unused]] void never_stale(wire::Segment& segment, int slot) {
    segment.header.knobs.stale_ms.store(60000);
    segment.slot(slot).heartbeat_ns.store(wire::now_ns());
}

[[maybe_unused]] bool is_open(wire::Segment& segment, int slot) {
    return segment.slot(slot).gpus[0].gate.load() == wire::kGateOpen;
}

[[maybe_unused]] bool may_copy(wire::Segment& segment, int slot) {
    return segment.slot(slot).copy_gates[0].load() == wire::kGateOpen;
}

[[maybe_unused]] int busy_tenant(wire::Segment& segment, wire::Class tenant_class, uint32_t weight = 1000) {
    int slot = wire::take_slot(segment);
    wire::join_class(segment, slot, tenant_class);
    segment.slot(slot).weight.store(weight);
    wire::go_busy(segment, slot, 0);
    never_stale(segment, slot);
    wire::refresh_gates(segment, tenant_class, 0);
    return slot;
}

}  // namespace
