// What the daemon asks of a segment, through ctypes: one look at all tenants, and a sleep that ends when one of them
// has work. The launch path sends nothing to the daemon: the sleeper looks, seldom and in few instructions.
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <cerrno>

#include "wire/border.h"
#include "wire/gates.h"
#include "wire/row.h"
#include "wire/segment.h"
#include "wire/shared_segment.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using wire::Row;

bool is_known(wire::Segment& segment, int gpu) { return segment.header.gpus[gpu].known.load() == wire::kGpuValid; }

uint64_t operations_of(wire::OnGpu& here) {
    wire::Figures& figures = here.figures;
    return figures.kernels.load(std::memory_order_relaxed) + figures.graphs.load(std::memory_order_relaxed) +
           figures.copies.load(std::memory_order_relaxed) + figures.memory_ops.load(std::memory_order_relaxed);
}

Row row_of(wire::Segment& segment, int index, int gpu, uint64_t now) {
    wire::Slot& slot = segment.slot(index);
    wire::OnGpu& here = slot.gpus[gpu];
    uint32_t where = slot.residence.where.load();
    bool moves = where == wire::evicting || where == wire::restoring;
    Row row = {};
    row.started = slot.started;
    row.used_ns = here.used_ns.load();
    row.busy_ns = here.busy_ns.load();
    row.gap_ns = here.gap_ns.load();
    row.blocked_ns = here.blocked_ns.load();
    row.blocking_calls = here.blocking_calls.load();
    row.own_cpu_ns = slot.own[gpu].cpu_ns.load();
    row.asleep_ns = slot.own[gpu].asleep_ns.load();
    row.operations = operations_of(here);
    row.bursts = here.figures.bursts.load();
    row.moved_ns = moves ? now : std::min(slot.residence.since_ns.load(), now);
    row.shut_until_ns = here.shut_until_ns.load();
    row.tolerant_until_ns = here.tolerant_until_ns.load();
    row.slot = static_cast<uint32_t>(index);
    row.gpu = static_cast<uint32_t>(gpu);
    row.pid = slot.pid;
    row.tenant_class = slot.tenant_class.load();
    row.weight = slot.weight.load();
    row.slowdown = slot.slowdown.load();
    row.floor = slot.floor.load();
    row.has_work = wire::has_work(segment, index, gpu);
    row.is_held = here.gate.load() != wire::kGateOpen;
    row.in_flight_us = here.in_flight_us.load();
    row.rate = wire::rate_of(here, now);
    row.sms = here.sms.load();
    row.sms_refused = slot.sms_refused.load();
    row.profiled_kernels = slot.profiled_kernels.load();
    row.unprofiled_kernels = slot.unprofiled_kernels.load();
    row.mps_daemon = static_cast<uint32_t>(slot.mps_fault.load() ? 0 : slot.mps_daemon.load());
    return row;
}

// A tenant writes its own slot as it likes; what a policy is told only grows all the same.
void keep_growing(Row& row, Row& earlier) {
    if (row.started == earlier.started && row.pid == earlier.pid) {
        row.used_ns = std::max(row.used_ns, earlier.used_ns);
        row.busy_ns = std::max(row.busy_ns, earlier.busy_ns);
        row.gap_ns = std::max(row.gap_ns, earlier.gap_ns);
        row.blocked_ns = std::max(row.blocked_ns, earlier.blocked_ns);
        row.blocking_calls = std::max(row.blocking_calls, earlier.blocking_calls);
        row.own_cpu_ns = std::max(row.own_cpu_ns, earlier.own_cpu_ns);
        row.asleep_ns = std::max(row.asleep_ns, earlier.asleep_ns);
        row.operations = std::max(row.operations, earlier.operations);
        row.bursts = std::max(row.bursts, earlier.bursts);
    }
    earlier = row;
}

template <typename Visit>
void for_each_member(wire::Segment& segment, Visit visit) {
    if (wire::is_shared(segment)) wire::look_around(segment);
    uint64_t words[wire::kSlotWords];
    wire::members(segment, words);
    for (int word = 0; word < wire::kSlotWords; ++word)
        for (uint64_t bits = words[word]; bits; bits &= bits - 1) visit(word * 64 + __builtin_ctzll(bits));
}

// One cache line of each tenant: 255 that are idle are looked at in some ten microseconds.
struct Stir {
    bool works;
    uint64_t count;  // changes when a tenant launches something, comes or goes
};

Stir stir_in(wire::Segment& segment) {
    Stir stir = {false, 0};
    int gpus[wire::kGpus], known = 0;
    for (int gpu = 0; gpu < wire::kGpus; ++gpu)
        if (is_known(segment, gpu)) gpus[known++] = gpu;
    for_each_member(segment, [&](int index) {
        stir.count += 1;
        for (int i = 0; i < known; ++i) {
            stir.works |= wire::has_work(segment, index, gpus[i]);
            stir.count += operations_of(segment.slot(index).gpus[gpus[i]]);
        }
    });
    return stir;
}

}  // namespace

// Writes a row for each live tenant on each GPU that it has used, and into `live` how many tenants there are. A slot
// whose owner died is reaped on the way, and the gates that it kept closed are opened. `earlier` has a row for each
// slot on each GPU, zeroed before the first look. Returns the number of rows.
EXPORT int cotenant_segment_look(void* opened, uint64_t now, void* rows, void* earlier, int room, int* live) {
    auto& segment = *static_cast<wire::Segment*>(opened);
    Row *out = static_cast<Row*>(rows), *before = static_cast<Row*>(earlier);
    int written = 0;
    bool lost = false;
    *live = 0;
    for_each_member(segment, [&](int index) {
        wire::Slot& slot = segment.slot(index);
        if (!wire::is_live(slot)) {
            lost = true;
            return;
        }
        ++*live;
        for (int gpu = 0; gpu < wire::kGpus && written < room; ++gpu) {
            wire::OnGpu& here = slot.gpus[gpu];
            if (!is_known(segment, gpu) || !(here.busy.load() || here.figures.bursts.load())) continue;
            Row& row = out[written] = row_of(segment, index, gpu, now);
            if (row.tenant_class >= wire::kClasses) continue;
            keep_growing(row, before[index * wire::kGpus + gpu]);
            ++written;
        }
    });
    if (lost) wire::reap_slots(segment);
    return written;
}

// Sleeps for `most_ms` at most, and no longer than until a tenant has work, joins or leaves, or a command names a
// policy.
EXPORT int cotenant_segment_sleep(void* opened, uint32_t choices, int most_ms, const int* signals, int count) {
    auto& segment = *static_cast<wire::Segment*>(opened);
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < count; ++i) sigaddset(&set, signals[i]);
    // In an administrator's segment a look reads every slot's file.
    int nap_ms = wire::is_shared(segment) ? 100 : 50;
    Stir before = stir_in(segment);
    for (int slept_ms = 0; slept_ms < most_ms; slept_ms += nap_ms) {
        timespec nap = {0, std::min(nap_ms, most_ms - slept_ms) * 1000000L};
        int got = sigtimedwait(&set, nullptr, &nap);
        if (got > 0) return got;
        Stir now = stir_in(segment);
        if (now.works || now.count != before.count || segment.header.choices.load() != choices) return 0;
    }
    return 0;
}
