#include "tenant/slice_choice.h"

#include <algorithm>
#include <utility>

#include "tenant/timeline.h"
#include "wire/border.h"
#include "wire/clock.h"
#include "wire/gates.h"

namespace tenant {

namespace {

constexpr uint64_t kLongestWaitNs = 5000000;  // more than that was no change of contexts
constexpr uint32_t kMostWaits = 64;           // in a look: somebody has come, gone or written garbage
constexpr uint64_t kMetNs = 1000000000;       // how long two production jobs contend after they were at work at once
// How long slices follow floors after somebody was below one: what the tenant has started then ends, and is not cut. To
// set a slice takes 0.5 ms on an H200, and a tenant is below a floor of 2 % four times a second.
constexpr uint64_t kBelowNs = 250000000;
constexpr uint64_t kGraphNs = 2000000000;  // how long a tenant counts as one of graphs that launches none any more

}  // namespace

bool SliceChoice::note_overlap(bool overlaps) {
    bool changed = overlaps != overlaps_;
    overlaps_ = overlaps;
    return changed;
}

bool SliceChoice::note_floors(int gpu, uint64_t now_ns) {
    const Terms& terms = membership_.terms;
    bool is_below = terms.tenant_class == wire::production
                        ? wire::is_any_below_floor(membership_.segment(), gpu)
                        : terms.floor && membership_.slot().gpus[gpu].below_floor.load();
    if (is_below) below_ns_ = now_ns;
    return wire::is_within(below_ns_, kBelowNs) != by_floors_;
}

bool SliceChoice::note_rest(int gpu, uint64_t now_ns) {
    if (membership_.terms.tenant_class == wire::production) return false;
    wire::Segment& segment = membership_.segment();
    auto& seen = seen_[gpu];
    bool beside_outsiders = seen.stands_still || wire::holds_until(segment.header.gpus[gpu].outsiders_until_ns, now_ns);
    if (!beside_outsiders || wire::worked_above(segment, membership_.index(), gpu, seen.bursts_above))
        seen.worked_above_ns = now_ns;
    bool rests = now_ns - seen.worked_above_ns >= admission::kRestNs;
    return std::exchange(seen.rests, rests) != rests;
}

bool SliceChoice::stands_still() const {
    bool any = false;
    membership_.used_gpus.each([&](int gpu) { any |= seen_[gpu].stands_still; });
    return any;
}

bool SliceChoice::is_any_above_awake() {
    bool any = false;
    membership_.used_gpus.each([&](int gpu) {
        any |= !seen_[gpu].rests && wire::others_of(membership_.segment(), membership_.index(), gpu).above;
    });
    return any;
}

// A tenant of graphs that was drained did an H200's production as much harm as one of linked streams: most likely the
// branches of a graph, and its kernels and the gates aside of them, wait for each other in the same way.
void SliceChoice::note_graphs(uint64_t now_ns) {
    uint64_t graphs = 0;
    membership_.used_gpus.each([&](int gpu) { graphs += membership_.slot().gpus[gpu].figures.graphs.load(); });
    if (graphs != graphs_) graphs_ns_ = now_ns;
    graphs_ = graphs;
}

void SliceChoice::mind(bool has_above) {
    if (membership_.is_lane()) return;  // slices are the process's
    wire::Segment& segment = membership_.segment();
    const Terms& terms = membership_.terms;
    uint32_t tenant_class = terms.tenant_class, weight = terms.weight;
    bool beside_production = false, cuts_below = false;
    by_floors_ = wire::is_within(below_ns_, kBelowNs);
    if (tenant_class != wire::production && by_floors_) {
        weight = 1000;
        membership_.used_gpus.each([&](int gpu) {
            wire::Promised promised = wire::promised_on(segment, gpu);
            weight = std::max(weight, admission::weight_for_floor(terms.floor, promised.floors, promised.weights));
        });
    }
    if (tenant_class == wire::production)
        membership_.used_gpus.each([&](int gpu) {
            int index = membership_.index();
            beside_production |= wire::anybody_else(segment, index, gpu, wire::production, wire::production);
            cuts_below |= wire::is_cut_below(segment, index, gpu);
            bool is_busy = membership_.slot().gpus[gpu].busy.load();
            if (is_busy && wire::is_equal_at_work(segment, index, gpu)) met_ns_ = wire::now_ns();
        });
    bool shares = by_floors_ || beside_production;
    // The driver's own.
    if (wire::rule_of(segment.header) == admission::none) tenant_class = wire::standard, shares = has_above = false;
    Durations::Noted noted = membership_.durations.take_noted();
    all_kernels_.saw(noted.us, noted.squares);
    membership_.rest_us.store(all_kernels_.rest_us(), std::memory_order_relaxed);
    if (has_above && said_cost_us_ < 0) membership_.used_gpus.each([&](int gpu) { learn_cost(gpu); });
    float cost_us = said_cost_us_ < 0 ? cut_cost_.us() : said_cost_us_;
    uint64_t now = wire::now_ns();
    note_graphs(now);
    bool is_linked = graphs_ns_ && now - graphs_ns_ < kGraphNs;
    membership_.used_gpus.each([&](int gpu) { is_linked |= membership_.linked_streams_on(gpu) > 0; });
    cutting_.look(static_cast<double>(now) / 1000, noted.us, noted.squares, cost_us, is_linked);
    admission::Slicing slicing{tenant_class,    shares,   weight, has_above && is_any_above_awake(),
                               cutting_.cuts(), overlaps_};
    slicing.stands_still = stands_still();
    slicing.cuts_below = cuts_below && !by_floors_;
    slicing.contends = wire::is_within(met_ns_, kMetNs);
    admission::TimeSlices wanted{asked_us_ ? asked_us_ : admission::time_slice_for(slicing),
                                 admission::copy_slice_for(slicing)};
    timeline::saw_slice(wanted.kernels_us, has_above && slicing.cuts, wire::now_ns());
    if (wanted == set_) return;
    set_ = wanted;
    set_time_slices(wanted);
    wire::Slot& slot = membership_.slot();
    slot.time_slice_us.store(time_slice().granted_us);
    slot.time_slice_refused.store(time_slice().refused);
}

// What production's bursts have waited since the last look tells something where this tenant has run since, alone of
// the classes below and with the slice that it has now. Where it stands still production waits for others, too.
void SliceChoice::learn_cost(int gpu) {
    wire::Segment& segment = membership_.segment();
    auto& seen = seen_[gpu];
    wire::Waits now = wire::waits_above(segment, membership_.index(), gpu);
    wire::Waits before = std::exchange(seen.waits, now);
    uint64_t used_ns = membership_.slot().gpus[gpu].used_ns.load();
    bool has_run = std::exchange(seen.used_ns, used_ns) != used_ns;
    uint32_t waits = now.count - before.count;
    uint64_t waited_ns = now.ns - before.ns;
    if (!waits || waits > kMostWaits || waited_ns / waits > kLongestWaitNs || !has_run) return;
    if (asked_us_ || seen.stands_still || time_slice().refused) return;
    if (wire::is_equal_or_below_at_work(segment, membership_.index(), gpu)) return;
    float each_us = static_cast<float>(waited_ns / waits) / 1000;
    for (uint32_t i = 0; i < waits; ++i) cut_cost_.saw(cutting_.cuts(), cutting_.rest_us(), each_us);
}

}  // namespace tenant
