#include "tenant/memory/space.h"

#include <cstdlib>
#include <new>

#include "tenant/membership.h"
#include "tenant/memory/quota.h"
#include "tenant/timeline.h"
#include "wire/border.h"
#include "wire/shared_segment.h"
#include "wire/sleep.h"

namespace tenant {

namespace {

constexpr uint64_t kMillisecond = 1000000;
// With a tenant that was asked and does not answer (it may have been stopped), and with one whose eviction is under
// way.
constexpr uint64_t kPatienceNs = 10000 * kMillisecond, kLongPatienceNs = 60000 * kMillisecond;
constexpr uint64_t kDoubtNs = 100 * kMillisecond;
// A refusal counts for so long. A capture ends soon; a lack of host memory does not.
constexpr uint64_t kBriefNs = 20 * kMillisecond, kLongNs = 1000 * kMillisecond;

constexpr uint32_t kLongestStayMs = 3600000;

std::atomic<uint64_t> needed[wire::kGpus];

bool refuses_for(const wire::Slot& slot, uint64_t now, uint64_t brief_ns) {
    uint32_t why = slot.residence.refusal.load();
    if (why == wire::none_refused) return false;
    uint64_t lasts = why == wire::in_capture || why == wire::does_not_drain ? brief_ns : kLongNs;
    return now - slot.residence.refused_ns.load() < lasts;
}

arbiter::Tenant describe(wire::Segment& segment, uint32_t number, int gpu, uint64_t total, uint64_t now) {
    wire::Slot& slot = segment.slot(static_cast<int>(number));
    wire::Slot::Residence& residence = slot.residence;
    uint32_t where = residence.where.load();
    uint64_t bytes = memory_of_process(slot, gpu, total);
    uint64_t movable = slot.memory[gpu].movable_bytes.load();
    bool is_partly_evicted = where == wire::evicted && movable;
    bool here = where == wire::resident || where == wire::evicting || where == wire::restoring || is_partly_evicted;
    bool can_be_evicted = where == wire::evicting ||
                          ((where == wire::resident || is_partly_evicted) && !refuses_for(slot, now, kBriefNs));
    // A tenant that is restoring has counted by now what it waited for. A stopped one lets the others pass.
    bool waits = where != wire::restoring && residence.waiting_since_ns.load() &&
                 !wire::is_stale(segment, slot.heartbeat_ns.load());
    uint64_t later = here && !refuses_for(slot, now, 0) ? std::min(movable, bytes) : 0;
    movable = can_be_evicted ? std::min(movable, bytes) : 0;
    return {number,
            wire::class_of(slot),
            wire::weight_of(slot),
            bytes,
            movable,
            later,
            waits ? credible(slot.memory[gpu].wanted_bytes.load(), total) : 0,
            residence.wanted_hard.load() != 0,
            residence.waiting_since_ns.load(),
            residence.since_ns.load(),
            arbiter::stay_ns(residence.transfer_ns.load(), later,
                             std::min(wire::memory_knobs_of(segment.header).stay_ms, kLongestStayMs)),
            slot.gpus[gpu].busy.load() != 0,
            where == wire::evicting};
}

// COTENANT_CAPACITY and COTENANT_HOST_MEMORY, where `ctl` has not set the knob.
void begin(Membership& membership, int gpu) {
    wire::Segment& segment = membership.segment();
    if (wire::is_shared(segment)) return;  // the administrator's to say
    // What was said already holds.
    uint64_t said = parse_memory_limit(getenv("COTENANT_CAPACITY"));
    if (said && !(said & kShareOfGpu) && !wire::capacity_of(segment.header, gpu))
        wire::set_capacity(segment.header, gpu, said);
    said = parse_memory_limit(getenv("COTENANT_HOST_MEMORY"));
    wire::MemoryKnobs knobs = wire::memory_knobs_of(segment.header);
    if (said && !(said & kShareOfGpu) && !knobs.host_memory) {
        knobs.host_memory = said;
        wire::set_memory_knobs(segment.header, knobs);
    }
}
LISTEN(AtFirstUse, FirstUseStep::space, begin)

}  // namespace

Crowd::Crowd(wire::Segment& segment, int gpu_number, uint64_t total) {
    if (wire::is_shared(segment)) wire::look_around(segment);
    uint64_t capacity = wire::capacity_of(segment.header, gpu_number);
    gpu.capacity = capacity ? std::min(capacity, total ? total : capacity) : total;
    uint64_t headroom = wire::memory_knobs_of(segment.header).headroom;
    gpu.headroom = headroom ? headroom - 1 : arbiter::default_headroom(gpu.capacity);
    uint64_t now = wire::now_ns();
    uint64_t words[wire::kSlotWords];
    wire::members(segment, words);
    for (uint32_t word = 0; word < wire::kSlotWords; ++word) {
        for (uint64_t bits = words[word]; bits; bits &= bits - 1) {
            uint32_t number = word * 64 + static_cast<uint32_t>(__builtin_ctzll(bits));
            wire::Slot& slot = segment.slot(static_cast<int>(number));
            if (!wire::is_live(slot)) continue;
            arbiter::Tenant one = describe(segment, number, gpu_number, total, now);
            // A tenant that neither has nor wants any does not count.
            if (one.bytes || one.wanted || slot.gpus[gpu_number].figures.bursts.load()) tenants[count++] = one;
        }
    }
}

std::unique_ptr<Crowd> see_crowd(wire::Segment& segment, int gpu, uint64_t total) {
    return std::unique_ptr<Crowd>(new (std::nothrow) Crowd(segment, gpu, total));
}

const arbiter::Tenant* Crowd::find(uint32_t number) const {
    for (uint32_t i = 0; i < count; ++i)
        if (tenants[i].number == number) return &tenants[i];
    return nullptr;
}

uint32_t number_of(wire::Segment& segment, const wire::Slot& slot) {
    auto offset = reinterpret_cast<const char*>(&slot) - reinterpret_cast<const char*>(&segment.slot(0));
    return static_cast<uint32_t>(static_cast<size_t>(offset) / wire::place_bytes());
}

bool is_within_capacity(const Place& place) {
    // What the driver has is its own to say; a smaller capacity and the headroom are ours.
    bool limited = wire::capacity_of(place.membership->segment().header, place.gpu) != 0;
    if (!limited && !Still::memory_moves.load(std::memory_order_relaxed)) return true;
    std::unique_ptr<Crowd> crowd = see_crowd(place.membership->segment(), place.gpu, place.total());
    const arbiter::Tenant* self = crowd ? crowd->find(number_of(place.membership->segment(), place.slot())) : nullptr;
    return !self || crowd->gpu.capacity == 0 || crowd->taken() <= crowd->usable_by(*self);
}

bool takes_headroom(const Place& place) {
    std::unique_ptr<Crowd> crowd = see_crowd(place.membership->segment(), place.gpu, place.total());
    const arbiter::Tenant* self = crowd ? crowd->find(number_of(place.membership->segment(), place.slot())) : nullptr;
    return self && crowd->taken() > crowd->usable_by(*self) && crowd->taken() <= crowd->gpu.capacity;
}

void Crowd::wake_chosen(wire::Segment& segment, const arbiter::Tenant& who) const {
    uint32_t chosen[wire::kSlots];
    if (wire::is_shared(segment)) {
        wire::ring_bell(segment);
        return;
    }
    uint32_t found = arbiter::choose(tenants, count, who, missing(who), wire::now_ns(), chosen);
    for (uint32_t i = 0; i < found; ++i) {
        wire::Flag& wake = segment.slot(static_cast<int>(chosen[i])).residence.wake;
        wake.fetch_add(1);
        wire::wake_shared(wake);
    }
}

uint64_t needed_bytes(int gpu) { return needed[gpu].load(); }

namespace {

uint64_t needed_on_all() {
    uint64_t sum = 0;
    for (const auto& bytes : needed) sum += bytes.load();
    return sum;
}

}  // namespace

void Need::withdraw() {
    if (!began_ns_) return;
    began_ns_ = 0;
    if (needed[place_.gpu].fetch_sub(bytes_) != bytes_) return;
    // While its memory is evicted, the mover says what it waits for.
    wire::Slot::Residence& residence = place_.slot().residence;
    if (residence.where.load() == wire::evicted) return;
    place_.slot().memory[place_.gpu].wanted_bytes.store(0);
    if (!needed_on_all()) residence.waiting_since_ns.store(0);
}

bool Need::wait(bool by_driver) {
    timeline::Interval waiting(timeline::Event::space_wait, place_.gpu);
    Outside outside;
    do {
        if (!goes_on(by_driver)) {
            withdraw();
            // An evicted tenant restores first, wanting no more than it has; then it tries again.
            return !outside.end_if_down();
        }
        wire::nap(kMillisecond);
    } while (!may_try_ || !outside.end_if_down());
    return true;
}

bool Need::goes_on(bool by_driver) {
    wire::Segment& segment = place_.membership->segment();
    wire::Slot::Residence& mine = place_.slot().residence;
    uint64_t now = wire::now_ns();
    place_.membership->beat(now);
    // While it was stopped it has not waited: others have rightly passed.
    if (began_ns_ && wire::is_stale(segment, looked_ns_)) {
        began_ns_ += now - looked_ns_;
        hopeless_since_ns_ = 0;
    }
    looked_ns_ = now;
    if (!began_ns_) {
        began_ns_ = now;
        needed[place_.gpu].fetch_add(bytes_);
    }
    if (mine.where.load() != wire::evicted) {
        place_.slot().memory[place_.gpu].wanted_bytes.store(needed[place_.gpu].load());
        mine.wanted_bytes.store(needed_on_all());
        mine.wanted_hard.store(by_driver);
        if (!mine.waiting_since_ns.load()) mine.waiting_since_ns.store(began_ns_);
    }
    std::unique_ptr<Crowd> seen = see_crowd(segment, place_.gpu, place_.total());
    if (!seen) return false;
    const Crowd& crowd = *seen;
    const arbiter::Tenant* self = crowd.find(number_of(segment, place_.slot()));
    if (!self || bytes_ > crowd.gpu.capacity) return false;
    // A try counts the bytes for a moment, and if it is stopped in that, for long.
    may_try_ = by_driver || crowd.taken() + bytes_ <= crowd.usable_by(*self);
    if (crowd.is_next(*self)) crowd.wake_chosen(segment, *self);
    bool is_evicting = false, has_equals = false, others_move = false;
    for (uint32_t i = 0; i < crowd.count; ++i) {
        const arbiter::Tenant& one = crowd.tenants[i];
        is_evicting |= one.evicting;
        others_move |= arbiter::is_below(one, *self) &&
                       segment.slot(static_cast<int>(one.number)).residence.where.load() != wire::pinned;
        has_equals |= arbiter::yields_later(one, *self) && one.tenant_class == self->tenant_class;
    }
    bool is_worth_it = is_evicting || crowd.has_hope(*self);
    if (is_worth_it) hopeless_since_ns_ = 0;
    if (!is_worth_it && others_move) {
        // Counted bytes may be about to become memory that can move, or to be given back.
        if (!hopeless_since_ns_) hopeless_since_ns_ = now;
        is_worth_it = now - hopeless_since_ns_ < kDoubtNs;
    }
    // Equals have their stay, however long it is.
    if (!has_equals && now - began_ns_ > (is_evicting ? kLongPatienceNs : kPatienceNs)) is_worth_it = false;
    // Who gave hope may have made space and gone since the last try: there is one more.
    bool is_last_try = had_hope_ && !is_worth_it;
    had_hope_ = is_worth_it;
    return is_worth_it || is_last_try;
}

}  // namespace tenant
