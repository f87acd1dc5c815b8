// When a tenant's watcher sees what its streams do: the mirror of Turns::pace (native/tenant/turns.cpp). Among equals
// three things are known only once a watcher has looked:
//
//   the holder of the turn has run empty          a gap between two looks is not seen; a gap at a look ends a turn that
//                                                 was worth its switch, and looks in a row end any other
//   a tenant has drained behind its closed gate   the next may start only then
//   a stream has reached a kernel behind copies   the tenant asks for a turn only then
//
// Looks are an event each only where they may change something.
#include <algorithm>
#include <cmath>

#include "admission/turns.h"
#include "sim/gpu.h"

namespace sim {

namespace {

constexpr double kCopyingNaps = 2, kHoldingNaps = 3;  // of watch_us, between two looks
constexpr double kGolden = 0.6180339887498949;

uint64_t ns(double us) { return static_cast<uint64_t>(std::max(us, 0.0) * 1000); }

// The first look after `from_us` of those that follow one at `looked_us`. Naps differ by up to a half, evenly, so that
// looks keep no step with a job whose kernels come at regular intervals.
double after(double looked_us, double every_us, double from_us, uint32_t looks) {
    double every = std::max(every_us, 1.0), number = std::floor(std::max(0.0, from_us - looked_us) / every);
    for (number = std::max(number, 1.0);; ++number) {
        double place = (number + looks) * kGolden, late = 0.5 * (place - std::floor(place));
        if (double us = looked_us + every * (number + late - 0.25); us > from_us) return us;
    }
}

}  // namespace

// From when the watcher of the one before last saw it run to when the next one's first sees it run.
double Gpu::switch_us() const {
    const Interference& costs = machine_.interference;
    return costs.drain_us + costs.open_us;
}

// Of the holder of a turn that runs.
double Gpu::look_every_us(const Tenant& t) const {
    return looks_every_us(t.is_brief || t.was_empty ? 1 : kHoldingNaps);
}

double Gpu::next_look_us(const Tenant& t, double from_us) const {
    return after(t.looked_us, look_every_us(t), from_us, t.looks);
}

double Gpu::copying_look_us(const Tenant& t) const {
    return after(t.looked_us, looks_every_us(kCopyingNaps), now_, t.looks);
}

// It has nothing on the GPU any more.
void Gpu::expect_looks(Tenant& t) {
    if (t.holds_turn && t.look_us == never) t.look_us = next_look_us(t, now_);
    if (!t.gate.open && t.leaves_us == never) t.leaves_us = after(t.gate.closed_us, looks_every_us(1), now_, t.looks);
}

// Those that are on look at once: they may have run empty since they last looked.
void Gpu::become_ready(Tenant& t) {
    claim(t);
    for (uint32_t i : with_work_)
        if (i != t.number && tenants_[i].holds_turn && share_turns(t, tenants_[i])) look(tenants_[i]);
}

void Gpu::look(Tenant& t) {
    double since_us = t.looked_us;
    t.looked_us = now_;
    ++t.looks;
    t.look_us = never;
    t.was_empty = t.holds_turn && !is_on(t);
    if (!t.was_empty) return;
    bool leaves = t.is_brief && is_host_copy(t.kind);
    t.gaps_us += now_ - since_us;
    t.found_empty = admission::is_over({ns(t.turn_us), UINT64_MAX, ns(switch_us()), true, ns(t.gaps_us), leaves});
    if (!t.found_empty) t.look_us = is_host_copy(t.kind) ? copying_look_us(t) : next_look_us(t, now_);
}

// Before gates are refreshed.
void Gpu::look_due() {
    for (uint32_t i : with_work_) {
        Tenant& t = tenants_[i];
        if (t.seen_on && is_gated(t) && !is_on(t)) expect_looks(t);
        if (t.look_us <= now_) look(t);
        if (t.leaves_us <= now_) t.leaves_us = never;
        if (t.comes_us <= now_) {
            t.comes_us = never;
            become_ready(t);
        }
    }
}

double Gpu::look_edge_us(const Tenant& t) const { return std::min({t.look_us, t.leaves_us, t.comes_us}); }

}  // namespace sim
