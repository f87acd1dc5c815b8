#include "wire/gates.h"

#include <algorithm>
#include <utility>

#include "admission/time_slices.h"
#include "admission/turn_keys.h"
#include "wire/attached.h"
#include "wire/border.h"
#include "wire/clock.h"
#include "wire/shared_segment.h"
#include "wire/sleep.h"
#include "wire/waiting.h"

// A process may be killed between any two stores: tests define this to be killed at each place in turn.
#ifndef FAULT_POINT
#define FAULT_POINT()
#endif

namespace wire {

namespace {

constexpr int kMostTries = 100;

uint32_t rule_of(Segment& segment) { return rule_of(segment.header); }

// A neighbour may still hold the number of one that has left. Then nobody closes its gates, as nobody would open them.
bool is_member(Segment& segment, int index) {
    uint64_t mask = uint64_t{1} << (index % 64);
    for (auto& words : members_of(segment))
        if (words[index / 64].load() & mask) return true;
    return false;
}

template <class Is>
bool any_in(Segment& segment, uint32_t first, uint32_t last, Is&& is) {
    for (uint32_t tenant_class = first; tenant_class <= last && tenant_class < kClasses; ++tenant_class)
        for (int word = 0; word < kSlotWords; ++word)
            for (uint64_t bits = members_of(segment)[tenant_class][word].load(); bits; bits &= bits - 1)
                if (is(word * 64 + __builtin_ctzll(bits))) return true;
    return false;
}

template <class Do>
void for_each_in(Segment& segment, uint32_t first, uint32_t last, Do&& act) {
    any_in(segment, first, last, [&](int index) {
        act(index);
        return false;
    });
}

bool uses(const Slot& slot, int gpu) { return is_live(slot) && slot.gpus[gpu].figures.bursts.load(); }

using admission::Classes;
using admission::equals_of;

bool is_barred(const Slot& slot, int gpu) {
    const OnGpu& here = slot.gpus[gpu];
    return admission::is_barred(holds_until(here.shut_until_ns, now_ns()), here.over_rate.load() != 0,
                                here.below_floor.load() != 0);
}

// A tenant that is below its floor runs beside the holder of the turn, and nobody waits for it.
admission::Equal as_equal(Segment& segment, int index, int gpu) {
    const Slot& slot = segment.slot(index);
    const OnGpu& here = slot.gpus[gpu];
    uint64_t stop_ns = here.stop_ns.load();
    bool is_there = has_work(segment, index, gpu);
    uint32_t how = here.ready.load();
    bool takes_turns = how != beside;
    return {here.turn_key.load(),
            static_cast<uint32_t>(index),
            is_there && how && takes_turns && !is_barred(slot, gpu),
            here.holds_turn.load() != 0,
            is_there && here.on.load() && takes_turns && !here.below_floor.load(),
            stop_ns && !is_within(stop_ns, admission::kDrainNs),
            how < briefly || !takes_turns ? admission::kNotBrief : uint64_t{how - briefly} * 1000};
}

bool has_turn(Segment& segment, int index, int gpu) {
    if (segment.slot(index).gpus[gpu].ready.load() == beside) return true;
    Classes equals = equals_of(rule_of(segment), class_of(segment.slot(index)));
    admission::Equal self = as_equal(segment, index, gpu);
    return !any_in(segment, equals.first, equals.last, [&](int other) {
        return other != index && admission::waits_for(self, as_equal(segment, other, gpu));
    });
}

uint64_t key_for_others(Segment& segment, int index, int gpu) {
    return admission::key_for_others(segment.slot(index).gpus[gpu].turn_key.load(), now_ns());
}

// Of its equals, at work or not.
uint64_t largest_key(Segment& segment, int index, int gpu) {
    Classes equals = equals_of(rule_of(segment), class_of(segment.slot(index)));
    uint64_t most = 0;
    for_each_in(segment, equals.first, equals.last, [&](int other) {
        uint64_t key = key_for_others(segment, other, gpu);
        if (other != index && uses(segment.slot(other), gpu) && key != admission::kNoKey) most = std::max(most, key);
    });
    return most;
}

// Most often it stays, and then nothing that was charged meanwhile is lost.
void raise_key(OnGpu& here, uint64_t key) {
    if (here.turn_key.load() < key) here.turn_key.store(key);
}

// Its watcher may sleep there.
void wake_at_gate(Flag& gate) { wake_shared(gate); }

void step_off(Slot& slot, int gpu) {
    OnGpu& here = slot.gpus[gpu];
    stop_waiting(slot.waiting[gpu]);
    here.ready.store(0);
    here.on.store(0);
    here.stop_ns.store(0);
    here.holds_turn.store(0);
}

void close_gate(Flag& gate) {
    if (gate.fetch_add(2) + 2 == kGateOpen) gate.fetch_add(2);
}

void close_copy_gates_below(Segment& segment, int index, int gpu) {
    const Slot& slot = segment.slot(index);
    if (is_shared(segment) || rule_of(segment) != admission::strict || is_tolerant(slot, gpu)) return;
    for_each_in(segment, class_of(slot) + 1, kClasses - 1, [&](int below) {
        close_gate(segment.slot(below).copy_gates[gpu]);
        if (!is_member(segment, below)) refresh_gate(segment, below, gpu);
    });
}

uint32_t closed_after(uint32_t gate) { return gate + 2 == kGateOpen ? kGateOpen + 2 : gate + 2; }

}  // namespace

bool is_stale(Segment& segment, uint64_t heartbeat_ns) {
    return !is_within(heartbeat_ns, uint64_t{stale_ms(segment.header.knobs)} * 1000000);
}

bool has_work(Segment& segment, int index, int gpu) {
    const Slot& slot = segment.slot(index);
    return slot.gpus[gpu].busy.load() && is_live(slot) && !is_stale(segment, slot.heartbeat_ns.load());
}

bool anybody_at_work(Segment& segment, int index, int gpu) {
    return any_in(segment, 0, kClasses - 1, [&](int other) { return other != index && has_work(segment, other, gpu); });
}

bool anybody_else(Segment& segment, int index, int gpu, uint32_t first, uint32_t last) {
    return any_in(segment, first, last, [&](int other) { return other != index && uses(segment.slot(other), gpu); });
}

admission::Others others_of(Segment& segment, int index, int gpu) {
    uint32_t own = class_of(segment.slot(index));
    return {own > 0 && anybody_else(segment, index, gpu, 0, own - 1), anybody_else(segment, index, gpu, own, own),
            own + 1 < kClasses && anybody_else(segment, index, gpu, own + 1, kClasses - 1)};
}

bool has_company(Segment& segment, int index, int gpu, const admission::Others& others) {
    const OnGpu& here = segment.slot(index).gpus[gpu];
    uint64_t now = now_ns();
    bool is_steered = holds_until(here.shut_until_ns, now) || rate_of(here, now);
    return admission::has_company(rule_of(segment.header), others, is_steered);
}

uint64_t copies_above(Segment& segment, int index, int gpu) {
    uint32_t tenant_class = class_of(segment.slot(index));
    uint64_t copies = 0;
    if (tenant_class > 0)
        for_each_in(segment, 0, tenant_class - 1, [&](int other) {
            if (uses(segment.slot(other), gpu)) copies += segment.slot(other).gpus[gpu].figures.copies.load();
        });
    return copies;
}

Waits waits_above(Segment& segment, int index, int gpu) {
    uint32_t tenant_class = class_of(segment.slot(index));
    Waits waits;
    if (tenant_class > 0)
        for_each_in(segment, 0, tenant_class - 1, [&](int other) {
            const OnGpu& there = segment.slot(other).gpus[gpu];
            if (!uses(segment.slot(other), gpu)) return;
            waits.count += there.waits.load();
            waits.ns += there.waited_ns.load();
        });
    return waits;
}

bool worked_above(Segment& segment, int index, int gpu, uint64_t& bursts) {
    uint32_t tenant_class = class_of(segment.slot(index));
    uint64_t before = std::exchange(bursts, 0);
    bool has_any = false;
    if (tenant_class > 0)
        for_each_in(segment, 0, tenant_class - 1, [&](int other) {
            if (!uses(segment.slot(other), gpu)) return;
            has_any |= has_work(segment, other, gpu);
            bursts += segment.slot(other).gpus[gpu].figures.bursts.load();
        });
    return has_any || bursts != before;
}

bool is_equal_at_work(Segment& segment, int index, int gpu) {
    uint32_t tenant_class = class_of(segment.slot(index));
    return any_in(segment, tenant_class, tenant_class,
                  [&](int other) { return other != index && has_work(segment, other, gpu); });
}

bool is_equal_or_below_at_work(Segment& segment, int index, int gpu) {
    return any_in(segment, class_of(segment.slot(index)), kClasses - 1,
                  [&](int other) { return other != index && has_work(segment, other, gpu); });
}

bool is_any_below_floor(Segment& segment, int gpu) {
    return any_in(segment, 0, kClasses - 1, [&](int other) {
        const Slot& slot = segment.slot(other);
        return slot.floor.load() && slot.gpus[gpu].below_floor.load() && has_work(segment, other, gpu);
    });
}

float slice_share(Segment& segment, int index, int gpu, uint64_t switch_ns) {
    // No slices part the kernels of a lane from others of its process, nor those of one client of MPS from another's.
    bool is_together = segment.slot(index).lane.load() || segment.slot(index).mps_daemon.load();
    auto slice_us = [&](int tenant) {
        return is_together ? 1 : admission::slice_held(segment.slot(tenant).time_slice_us.load());
    };
    double own_us = slice_us(index), all_us = own_us;
    for_each_in(segment, 0, kClasses - 1, [&](int other) {
        if (other == index || !has_work(segment, other, gpu)) return;
        const Slot& slot = segment.slot(other);
        bool is_on = admission::is_gated(rule_of(segment), class_of(slot)) ? slot.gpus[gpu].on.load() != 0
                                                                           : !is_tolerant(slot, gpu);
        // What runs beside a turn is seldom there: it is told by what it executes.
        if (is_on && slot.gpus[gpu].ready.load() != beside) all_us += slice_us(other);
    });
    if (all_us == own_us || is_together) return static_cast<float>(own_us / all_us);
    return static_cast<float>(std::max(own_us - static_cast<double>(switch_ns) / 1000, 0.0) / all_us);
}

Promised promised_on(Segment& segment, int gpu) {
    Promised sums{0, 0};
    for_each_in(segment, 0, kClasses - 1, [&](int other) {
        const Slot& slot = segment.slot(other);
        if (!uses(slot, gpu)) return;
        sums.floors += std::min<uint32_t>(slot.floor.load(), 1000);
        if (class_of(slot) == production) sums.weights += weight_of(slot);
    });
    return sums;
}

bool is_cut_below(Segment& segment, int index, int gpu) {
    return any_in(segment, class_of(segment.slot(index)) + 1, kClasses - 1, [&](int other) {
        const Slot& slot = segment.slot(other);
        return uses(slot, gpu) && admission::is_cut_at(slot.time_slice_us.load());
    });
}

bool is_cut_below_on(Segment& segment, int index, int gpu) {
    return any_in(segment, class_of(segment.slot(index)) + 1, kClasses - 1, [&](int other) {
        const Slot& slot = segment.slot(other);
        return slot.gpus[gpu].on.load() && admission::is_cut_at(slot.time_slice_us.load()) &&
               has_work(segment, other, gpu);
    });
}

bool is_production_at_work(Segment& segment, int gpu) {
    return any_in(segment, production, production, [&](int other) { return has_work(segment, other, gpu); });
}

bool is_below_on(Segment& segment, int index, int gpu) {
    return any_in(segment, class_of(segment.slot(index)) + 1, kClasses - 1,
                  [&](int other) { return segment.slot(other).gpus[gpu].on.load() && has_work(segment, other, gpu); });
}

bool is_tolerant(const Slot& slot, int gpu) { return holds_until(slot.gpus[gpu].tolerant_until_ns, now_ns()); }

bool is_above_tolerant(Segment& segment, int index, int gpu) {
    uint32_t tenant_class = class_of(segment.slot(index));
    return tenant_class > 0 && !any_in(segment, 0, tenant_class - 1, [&](int other) {
               return uses(segment.slot(other), gpu) && !is_tolerant(segment.slot(other), gpu);
           });
}

bool is_above_busy(Segment& segment, int index, int gpu) {
    uint32_t tenant_class = class_of(segment.slot(index));
    return rule_of(segment) == admission::strict && tenant_class > 0 &&
           any_in(segment, 0, tenant_class - 1,
                  [&](int other) { return has_work(segment, other, gpu) && !is_tolerant(segment.slot(other), gpu); });
}

bool is_above_copying(Segment& segment, int index, int gpu) {
    uint32_t tenant_class = class_of(segment.slot(index));
    return rule_of(segment) == admission::strict && tenant_class > 0 &&
           any_in(segment, 0, tenant_class - 1, [&](int other) {
               const Slot& slot = segment.slot(other);
               return slot.gpus[gpu].busy.load() == copying && has_work(segment, other, gpu) && !is_tolerant(slot, gpu);
           });
}

namespace {

admission::Standing standing_with(Segment& segment, int index, int gpu, bool above_is_busy, bool has_turn) {
    Slot& slot = segment.slot(index);
    OnGpu& here = slot.gpus[gpu];
    return {class_of(slot), above_is_busy, has_turn, holds_until(here.shut_until_ns, now_ns()),
            here.over_rate.load() != 0,
            // What is queued must end before its memory can go.
            here.below_floor.load() != 0 || slot.residence.where.load() == evicting};
}

}  // namespace

admission::Standing standing(Segment& segment, int index, int gpu) {
    return standing_with(segment, index, gpu, is_above_busy(segment, index, gpu), has_turn(segment, index, gpu));
}

bool may_copy(Segment& segment, int index, int gpu) {
    if (!is_member(segment, index)) return true;
    admission::Standing tenant = standing_with(segment, index, gpu, false, true);
    return admission::may_copy(rule_of(segment), tenant, is_above_copying(segment, index, gpu));
}

namespace {

void refresh_copy_gate(Segment& segment, int index, int gpu) {
    Flag& gate = segment.slot(index).copy_gates[gpu];
    for (int tries = 0; tries < kMostTries; ++tries) {
        uint32_t before = gate.load();
        bool goes = may_copy(segment, index, gpu);
        FAULT_POINT();
        if (goes != (before == kGateOpen) &&
            !gate.compare_exchange_strong(before, goes ? kGateOpen : closed_after(before)))
            continue;
        if (is_shared(segment) && goes && before != kGateOpen) look_at_rivals(segment, index, Look::now);
        if (goes == may_copy(segment, index, gpu)) break;
    }
}

}  // namespace

void catch_up(Segment& segment, int index, int gpu) {
    Classes equals = equals_of(rule_of(segment), class_of(segment.slot(index)));
    uint64_t least = admission::kNoKey;
    for_each_in(segment, equals.first, equals.last, [&](int other) {
        if (other != index && has_work(segment, other, gpu))
            least = std::min(least, key_for_others(segment, other, gpu));
    });
    Count& key = segment.slot(index).gpus[gpu].turn_key;
    uint64_t before = key.load(), after = admission::key_with_work(before, least);
    if (after != before) key.store(after);
}

void go_busy(Segment& segment, int index, int gpu, uint32_t how) {
    Slot& slot = segment.slot(index);
    slot.heartbeat_ns.store(now_ns());
    FAULT_POINT();
    uint32_t nothing = idle;
    slot.gpus[gpu].busy.compare_exchange_strong(nothing, busy);
    FAULT_POINT();
    close_gates_below(segment, index, gpu);
    if (slot.gpus[gpu].busy.load() == copying) close_copy_gates_below(segment, index, gpu);
    uint32_t rule = rule_of(segment), tenant_class = class_of(slot);
    if (!admission::is_gated(rule, tenant_class)) return;
    if (is_shared(segment)) look_at_rivals(segment, index, Look::now);
    catch_up(segment, index, gpu);
    FAULT_POINT();
    if (how)
        go_ready(segment, index, gpu, how);
    else
        refresh_gate(segment, index, gpu);
}

void go_idle(Segment& segment, int index, int gpu) {
    Slot& slot = segment.slot(index);
    slot.gpus[gpu].busy.store(idle);
    FAULT_POINT();
    step_off(slot, gpu);
    FAULT_POINT();
    refresh_gates(segment, class_of(slot), gpu);
}

void go_ready(Segment& segment, int index, int gpu, uint32_t how) {
    Slot& slot = segment.slot(index);
    OnGpu& here = slot.gpus[gpu];
    Classes equals = equals_of(rule_of(segment), class_of(slot));
    here.ready.store(how);
    FAULT_POINT();
    raise_key(here, admission::key_when_ready(here.turn_key.load(), largest_key(segment, index, gpu)));
    if (refresh_gate(segment, index, gpu) || is_shared(segment)) return;
    // A tenant that is on may have run empty since it last looked.
    for_each_in(segment, equals.first, equals.last, [&](int other) {
        if (other != index && as_equal(segment, other, gpu).is_on) wake_at_gate(segment.slot(other).gpus[gpu].gate);
    });
}

void go_empty(Segment& segment, int index, int gpu, uint64_t ran_ns) {
    Slot& slot = segment.slot(index);
    bool had_turn = slot.gpus[gpu].on.load();
    step_off(slot, gpu);
    FAULT_POINT();
    if (had_turn) refresh_gates(segment, class_of(slot), gpu, ran_ns);
}

void leave_gpu(Segment& segment, int index, int gpu, uint32_t gate, uint64_t ran_ns) {
    Slot& slot = segment.slot(index);
    OnGpu& here = slot.gpus[gpu];
    here.on.store(0);
    here.stop_ns.store(0);
    FAULT_POINT();
    // Somebody may be opening it: says that it is on before, and after.
    if (here.gate.load() != gate) here.on.store(1);
    refresh_gates(segment, class_of(slot), gpu, ran_ns);
}

void forgo_turn(Segment& segment, int index, int gpu) {
    OnGpu& here = segment.slot(index).gpus[gpu];
    raise_key(here, admission::key_when_empty(here.turn_key.load(), ready_equals(segment, index, gpu).least_key_ns));
    here.holds_turn.store(0);
    FAULT_POINT();
    stop_waiting(segment.slot(index).waiting[gpu]);
    here.ready.store(0);
}

void end_turn(Segment& segment, int index, int gpu) {
    OnGpu& here = segment.slot(index).gpus[gpu];
    uint32_t how = here.ready.load();
    if (how >= briefly) here.ready.compare_exchange_strong(how, ready);
    FAULT_POINT();
    here.holds_turn.store(0);
}

bool is_equal_on(Segment& segment, int index, int gpu) {
    Classes equals = equals_of(rule_of(segment), class_of(segment.slot(index)));
    return any_in(segment, equals.first, equals.last, [&](int other) {
        return other != index && is_live(segment.slot(other)) && segment.slot(other).gpus[gpu].on.load();
    });
}

ReadyEquals ready_equals(Segment& segment, int index, int gpu) {
    Classes equals = equals_of(rule_of(segment), class_of(segment.slot(index)));
    ReadyEquals found{0};
    for_each_in(segment, equals.first, equals.last, [&](int other) {
        if (other == index) return;
        found.any_beside |= segment.slot(other).gpus[gpu].ready.load() == beside && has_work(segment, other, gpu);
        admission::Equal one = as_equal(segment, other, gpu);
        if (!one.is_ready) return;
        ++found.count;
        found.brief_ns = std::min(found.brief_ns, one.brief_ns);
        found.least_key_ns = std::min(found.least_key_ns, key_for_others(segment, other, gpu));
    });
    found.count += found.count > 0;
    return found;
}

void close_gates_below(Segment& segment, int index, int gpu) {
    const Slot& slot = segment.slot(index);
    if (is_shared(segment) || rule_of(segment) != admission::strict || is_tolerant(slot, gpu)) return;
    for_each_in(segment, class_of(slot) + 1, kClasses - 1, [&](int below) {
        OnGpu& there = segment.slot(below).gpus[gpu];
        uint32_t before = there.gate.fetch_add(2);
        if (before + 2 == kGateOpen) there.gate.fetch_add(2);
        if (before == kGateOpen && there.ready.load()) preempt(segment.slot(below).waiting[gpu], now_ns());
        if (!is_member(segment, below)) refresh_gate(segment, below, gpu);
    });
}

void begin_copying(Segment& segment, int index, int gpu) {
    uint32_t before = busy;
    if (!segment.slot(index).gpus[gpu].busy.compare_exchange_strong(before, copying)) return;
    FAULT_POINT();
    close_copy_gates_below(segment, index, gpu);
}

void end_copying(Segment& segment, int index, int gpu) {
    uint32_t before = copying;
    if (!segment.slot(index).gpus[gpu].busy.compare_exchange_strong(before, busy)) return;
    FAULT_POINT();
    if (is_shared(segment)) return;  // lower classes look for themselves
    for_each_in(segment, class_of(segment.slot(index)) + 1, kClasses - 1,
                [&](int below) { refresh_copy_gate(segment, below, gpu); });
}

void refresh_gates(Segment& segment, uint32_t tenant_class, int gpu, uint64_t ran_ns) {
    if (is_shared(segment)) {
        int own = attached(segment).own;
        if (own >= 0) refresh_gate(segment, own, gpu);
        return;
    }
    uint32_t first = rule_of(segment) == admission::fair ? 0 : tenant_class;
    for_each_in(segment, first, kClasses - 1, [&](int index) { refresh_gate(segment, index, gpu, ran_ns); });
}

bool refresh_gate(Segment& segment, int index, int gpu, uint64_t ran_ns) {
    OnGpu& here = segment.slot(index).gpus[gpu];
    Slot::Waiting& waiting = segment.slot(index).waiting[gpu];
    auto may_run = [&](bool* has_turn) {
        *has_turn = false;
        if (!is_member(segment, index)) return true;
        uint32_t rule = rule_of(segment);
        admission::Standing now = standing(segment, index, gpu);
        *has_turn = now.has_turn && here.ready.load() != beside && !is_barred(segment.slot(index), gpu) &&
                    admission::is_gated(rule, now.tenant_class);
        return admission::may_run(rule, now);
    };
    bool goes = true, was_open = false;
    // The loop is bounded, in case a process writes garbage without end: the next look comes soon.
    for (int tries = 0; tries < kMostTries; ++tries) {
        uint32_t before = here.gate.load();
        bool has_turn = false, ready = here.ready.load();
        was_open = before == kGateOpen;
        goes = may_run(&has_turn);
        // The tenant's own flags come first: a reader that looks after this finds it on.
        if (!has_turn) here.holds_turn.store(0);
        if (goes && ready) {
            here.on.store(1);
            here.stop_ns.store(0);
            if (has_turn && !here.holds_turn.load()) {
                here.switch_ns.store(ran_ns);
                here.holds_turn.store(1);
            }
        }
        FAULT_POINT();
        if (goes != was_open && !here.gate.compare_exchange_strong(before, goes ? kGateOpen : closed_after(before)))
            continue;
        if (goes && !was_open) end_wait(waiting, now_ns());
        if (!goes && was_open && ready) preempt(waiting, now_ns());
        if (!goes && !was_open && ready) begin_wait(waiting, now_ns());
        // Its watcher may have found it standing just before.
        if (goes && ready && !was_open) here.on.store(1);
        if (is_shared(segment) && goes && !was_open) look_at_rivals(segment, index, Look::now);
        if (goes == may_run(&has_turn)) break;
    }
    if (goes && !was_open && here.ready.load()) wake_at_gate(here.gate);
    refresh_copy_gate(segment, index, gpu);
    return goes;
}

uint64_t used_beside_ns(Segment& segment, int index, int gpu) {
    Classes equals = equals_of(rule_of(segment), class_of(segment.slot(index)));
    uint64_t sum = 0;
    for_each_in(segment, equals.first, equals.last, [&](int other) {
        if (other != index) sum += segment.slot(other).gpus[gpu].beside_ns.load(std::memory_order_relaxed);
    });
    return sum;
}

void charge(Segment& segment, int index, int gpu, uint64_t used_ns, uint64_t owed_ns) {
    Slot& slot = segment.slot(index);
    OnGpu& here = slot.gpus[gpu];
    if (here.ready.load() == beside) here.beside_ns.fetch_add(used_ns, std::memory_order_relaxed);
    here.used_ns.fetch_add(used_ns, std::memory_order_relaxed);
    if (admission::is_gated(rule_of(segment), class_of(slot)))
        here.turn_key.fetch_add(admission::charged_ns(owed_ns, weight_of(slot)), std::memory_order_relaxed);
}

}  // namespace wire
