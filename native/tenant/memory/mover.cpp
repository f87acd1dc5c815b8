#include "tenant/memory/mover.h"

#include <algorithm>

#include "tenant/captures.h"
#include "tenant/fork.h"
#include "tenant/membership.h"
#include "tenant/membership_events.h"
#include "tenant/memory/deferred_free.h"
#include "tenant/memory/move_barrier.h"
#include "tenant/memory/pause_notice.h"
#include "tenant/memory/quota.h"
#include "tenant/memory/residence.h"
#include "tenant/memory/space.h"
#include "tenant/memory/step_boundary.h"
#include "tenant/memory/unused_ranges.h"
#include "tenant/memory/used_contexts.h"
#include "tenant/own_thread.h"
#include "tenant/timeline.h"
#include "wire/sleep.h"

namespace tenant {

namespace {

using used_contexts::Drained;

constexpr uint64_t kMillisecond = 1000000;
constexpr uint64_t kResidentLookNs = 20 * kMillisecond;
// Without having been told to; and for the requests of this process.
constexpr uint64_t kUntoldLookNs = 1000 * kMillisecond, kUntoldSharedLookNs = 20000 * kMillisecond;
constexpr uint64_t kRequestNs = 1000 * kMillisecond;
// While the memory is evicted, or the mover waits for a step boundary.
constexpr uint64_t kSoonLookNs = 5 * kMillisecond;
constexpr uint64_t kBetweenBlocksNs = kMillisecond;
constexpr uint64_t kEnterPatienceNs = 2000 * kMillisecond;
constexpr uint64_t kDrainPatienceNs = 3000 * kMillisecond;
constexpr uint64_t kSoonNs = 5 * kMillisecond, kRetryNs = 100 * kMillisecond;  // after a move that failed
constexpr int kMostTriesToStop = 500;                                          // of 10 ms
constexpr uint64_t kCrowdedForNs = 60000 * kMillisecond;
constexpr uint64_t kNotNeededForNs = 5000 * kMillisecond;  // host memory, before it is given back
constexpr uint64_t kNoMoreForNs = 1000 * kMillisecond;     // host memory, after there was none to be had

enum Phase : uint32_t { not_started, moving, stopping, stopped };
std::atomic<uint32_t> phase{not_started};
std::atomic<uint32_t> where_now{wire::resident};  // of this process's memory, for its other threads
std::atomic<uint32_t> asked_pause{0};             // 1 + (1 to pause, 0 to go on), by the watcher

timeline::Event event_of(wire::Where where) {
    using timeline::Event;
    return where == wire::evicting ? Event::evicting : where == wire::evicted ? Event::evicted : Event::restoring;
}

class Mover : private Others {
 public:
    explicit Mover(Membership& membership)
        : membership_(membership), slot_(membership.slot()), mine_(membership.slot().residence) {}

    void run();
    // What `run` does; tests do it look by look (tests/tenant/mover.cpp).
    void look(uint64_t now);
    bool prepare();

 private:
    void take_requests();
    void see_limit();
    bool exceeds_limit() const;
    bool must_make_space(uint64_t now);
    bool is_pressed();
    template <class See>
    void see_crowds(See&& see);  // of the GPUs where it has memory that can be evicted
    bool must_evict(uint64_t now) { return is_paused_ || is_over_limit_ || must_make_space(now); }
    void evict();
    bool evict_chunks(const UnusedRanges& unused);
    bool is_partly_evicted() const;
    void evict_the_rest();
    bool make_still();
    bool streams_are_empty();
    void refuse(wire::Refusal why);
    bool may_restore();
    bool claim();
    void restore();
    void have_more_space() override;
    bool need_the_space() override { return is_pressed(); }
    void set_where(wire::Where where);
    void show();

    Membership& membership_;
    wire::Slot& slot_;
    wire::Slot::Residence& mine_;  // shown there; what counts is kept here
    wire::Where where_ = wire::resident;
    uint64_t where_since_ns_ = 0;
    bool is_paused_ = false;  // by hand
    bool is_over_limit_ = false;
    uint64_t seen_limit_ = 0;
    uint64_t evicting_ns_ = 0, next_try_ns_ = 0;
    uint64_t asked_ns_ = 0;  // since when it has to evict, and waits for a step boundary
    uint64_t crowded_ns_ = 0, prepare_from_ns_ = 0;
    uint64_t needed_ns_ = 0;  // when all its host memory last was
    MovableBytes before_evicting_;
    uint64_t claimed_[wire::kGpus] = {};
    uint64_t above_[wire::kGpus] = {};  // while it restores: what the higher classes had when it began
    uint32_t hopeless_ = 0;             // by GPU: while it is evicted, there cannot be space for it
    bool has_turned_ = false;           // it abandoned its last restore: only tenants that wait make it do so again
};

void Mover::run() {
    CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    driver.cuThreadExchangeStreamCaptureMode(&relaxed);
    // In an administrator's segment others cannot wake it by its slot, and each look reads the files of all. There, and
    // while it is idle, it looks when it is told to, and seldom without that.
    wire::Segment& segment = membership_.segment();
    const bool is_shared = wire::is_shared(segment);
    const uint64_t untold_ns = is_shared ? kUntoldSharedLookNs : kUntoldLookNs;
    uint64_t looked_ns = 0;
    bool more = false, is_told = true;
    while (phase.load() == moving) {
        uint32_t woken = mine_.wake.load();
        uint64_t now = wire::now_ns();
        bool is_idle = std::none_of(slot_.gpus, slot_.gpus + wire::kGpus, [](auto& gpu) { return gpu.busy.load(); });
        bool is_calm = is_shared || is_idle, is_soon = asked_ns_ || where_ == wire::evicted;
        bool is_due = !is_calm || is_soon || more || is_told || now - looked_ns > untold_ns;
        if (is_due || asked_pause.load()) {
            look(looked_ns = now);
            more = where_ == wire::resident && prepare();
            is_soon = asked_ns_ || where_ == wire::evicted;
        }
        uint64_t nap = more ? kBetweenBlocksNs : is_soon ? kSoonLookNs : is_calm ? kRequestNs : kResidentLookNs;
        if (is_shared)
            is_told = wire::wait_at_bell(segment, nap);
        else
            wire::wait_shared(mine_.wake, woken, nap);
        is_told = (is_shared && is_told) || mine_.wake.load() != woken;
        // Anybody may ring the bell without end. Ours ring no more often than this.
        uint64_t since = wire::now_ns() - looked_ns;
        if (is_shared && is_told && since < kSoonLookNs) wire::nap(kSoonLookNs - since);
    }
}

void Mover::take_requests() {
    uint32_t asked = asked_pause.exchange(0);
    if (!asked && is_paused_ && pause_notice::is_interrupted()) asked = 1;
    if (!asked) return;
    bool was_paused = is_paused_;
    is_paused_ = asked > 1;
    next_try_ns_ = 0;
    if (is_paused_ && !was_paused) pause_notice::begin();
    if (was_paused && !is_paused_) pause_notice::end();
}

void Mover::look(uint64_t now) {
    take_requests();
    see_limit();
    show();
    if (where_ == wire::evicted) {
        membership_.beat(now);
        if (now < next_try_ns_) return;
        if (is_partly_evicted() && must_evict(now))
            evict_the_rest();
        else if (may_restore())
            restore();
        return;
    }
    if (now < next_try_ns_ || !must_evict(now)) {
        if (asked_ns_) step_boundary::let_go();
        asked_ns_ = 0;
        return;
    }
    if (!asked_ns_) asked_ns_ = now;
    uint64_t patience = is_pressed() ? arbiter::kHurriedPatienceNs : arbiter::kPatienceNs;
    if (!captures.load() && step_boundary::is_worth_waiting(now, asked_ns_ + patience)) return;
    asked_ns_ = 0;
    evict();
}

template <class See>
void Mover::see_crowds(See&& see) {
    wire::Segment& segment = membership_.segment();
    for (int gpu = 0; gpu < wire::kGpus; ++gpu) {
        if (!slot_.memory[gpu].movable_bytes.load()) continue;
        std::unique_ptr<Crowd> crowd = see_crowd(segment, gpu, Place{&membership_, device_of_gpu(gpu), gpu}.total());
        const arbiter::Tenant* self = crowd ? crowd->find(number_of(segment, slot_)) : nullptr;
        if (self) see(gpu, *crowd, *self);
    }
}

// Only a change of the limit evicts a tenant for it: it allocates nothing over its limit, but the driver does, for a
// module that is loaded later. That memory cannot be evicted: the tenant would never be restored.
void Mover::see_limit() {
    uint64_t limit = memory_limit(slot_, uint64_t{1} << 40);
    is_over_limit_ = (is_over_limit_ || limit != seen_limit_) && exceeds_limit();
    seen_limit_ = limit;
}

bool Mover::exceeds_limit() const {
    if (!has_own_memory_limit(slot_)) return false;
    MovableBytes bytes = movable_bytes();
    for (int gpu = 0; gpu < wire::kGpus; ++gpu) {
        if (!bytes.all[gpu]) continue;
        Place place{&membership_, device_of_gpu(gpu), gpu};
        uint64_t used = memory_used(membership_.segment(), slot_, gpu, place.total()) + bytes.absent[gpu];
        if (used > place.limit()) return true;
    }
    return false;
}

bool Mover::must_make_space(uint64_t now) {
    uint32_t chosen[wire::kSlots];
    bool must = false;
    see_crowds([&](int, const Crowd& crowd, const arbiter::Tenant& self) {
        must |= crowd.gpu.capacity && arbiter::must_evict(crowd.gpu, crowd.tenants, crowd.count, self, now, chosen);
    });
    return must;
}

bool Mover::is_pressed() {
    bool pressed = false;
    see_crowds([&](int gpu, const Crowd& crowd, const arbiter::Tenant& self) {
        pressed |= arbiter::is_pressed(crowd.gpu, crowd.tenants, crowd.count, self, above_[gpu]);
    });
    return pressed;
}

void Mover::set_where(wire::Where where) {
    if (where != where_) {
        uint64_t now = wire::now_ns();
        if (where_ != wire::resident)
            timeline::note(event_of(where_), timeline::kNoGpu, where_since_ns_, now, slot_.host_bytes.load());
        where_since_ns_ = now;
    }
    where_ = where;
    where_now.store(where);
    mine_.where.store(where);
    // What is queued must be let through, or need not be any more.
    for (int gpu = 0; gpu < wire::kGpus; ++gpu)
        if (slot_.gpus[gpu].figures.bursts.load())
            wire::refresh_gate(membership_.segment(), static_cast<int>(number_of(membership_.segment(), slot_)), gpu);
}

void Mover::refuse(wire::Refusal why) {
    mine_.refused_ns.store(wire::now_ns());
    mine_.refusal.store(why);
    next_try_ns_ = wire::now_ns() + (why == wire::in_capture ? kSoonNs : kRetryNs);
    set_where(wire::resident);
    step_boundary::let_go();
    move_barrier::lower();
}

// Those that are watched. A driver without cuCtxRecordEvent is waited in: then none of these may stand at a gate.
bool Mover::streams_are_empty() {
    if (!membership_.try_lock()) return false;
    bool drained = true;
    membership_.streams.for_each([&](StreamState& state) {
        if (!drained) return;
        if (CUevent last_work = state.last_work.load(std::memory_order_acquire); state.is_known_by_event())
            drained = !last_work || driver.cuEventQuery(last_work) != CUDA_ERROR_NOT_READY;
        else if (driver.cuCtxSetCurrent(state.context) == CUDA_SUCCESS)
            drained = driver.cuStreamQuery(state.handle) != CUDA_ERROR_NOT_READY;
    });
    membership_.unlock();
    return drained;
}

bool Mover::make_still() {
    set_where(wire::evicting);
    if (!move_barrier::raise(kEnterPatienceNs)) {
        refuse(wire::does_not_drain);
        return false;
    }
    if (captures.load()) {
        refuse(wire::in_capture);
        return false;
    }
    used_contexts::begin_to_drain();
    bool are_empty = false;
    for (uint64_t began = wire::now_ns();;) {
        are_empty = are_empty || streams_are_empty();
        Drained drained = are_empty ? used_contexts::have_drained() : Drained::not_yet;
        if (drained == Drained::yes) break;
        set_where(wire::evicting);  // a higher class may have closed its gates again
        bool failed = drained == Drained::driver_failed;
        if (failed || wire::now_ns() - began > kDrainPatienceNs) {
            refuse(failed ? wire::driver_failed : wire::does_not_drain);
            return false;
        }
        wire::nap(100000);
    }
    return true;
}

// In the slot stands what is on the GPU.
void Mover::have_more_space() {
    MovableBytes before = before_evicting_, now = before_evicting_ = movable_bytes();
    uint64_t absent = 0;
    for (int gpu = 0; gpu < wire::kGpus; ++gpu) {
        show_evicted(slot_, gpu, now.absent[gpu]);
        correct({&membership_, 0, gpu}, before.all[gpu] - before.absent[gpu], now.all[gpu] - now.absent[gpu]);
        absent += now.absent[gpu];
    }
    slot_.host_bytes.store(absent);
}

void Mover::evict() {
    UnderWay under_way;
    if (!make_still()) return;
    uint64_t began = wire::now_ns();
    free_deferred();
    UnusedRanges unused = ask_for_unused_ranges();
    step_boundary::let_go();
    if (!evict_chunks(unused) && !residence.eviction.is_evicted()) {
        refuse(residence.eviction.refusal());
        return;
    }
    uint64_t now = wire::now_ns();
    evicting_ns_ = now - began;
    mine_.refusal.store(wire::none_refused);
    mine_.saved_bytes.fetch_add(residence.eviction.saved_bytes());
    mine_.dropped_bytes.fetch_add(residence.eviction.dropped_bytes());
    mine_.evictions.fetch_add(1);
    mine_.since_ns.store(now);
    mine_.waiting_since_ns.store(now);
    set_where(wire::evicted);
    show();
    // A tenant that has just made space does not take it again at once.
    next_try_ns_ = now + (is_partly_evicted() ? kSoonNs : std::min(evicting_ns_, 1000 * kMillisecond));
}

bool Mover::evict_chunks(const UnusedRanges& unused) {
    ResidenceLocked locked;
    before_evicting_ = movable_bytes();
    return residence.eviction.evict(unused, *this);
}

bool Mover::is_partly_evicted() const {
    return where_ == wire::evicted && std::any_of(slot_.memory, slot_.memory + wire::kGpus,
                                                  [](auto& on_one) { return on_one.movable_bytes.load(); });
}

// After a failure half-way. While the eviction gets on, tenants who wait for the space go on waiting.
void Mover::evict_the_rest() {
    UnderWay under_way;
    set_where(wire::evicting);
    uint64_t before = slot_.host_bytes.load();
    bool has_got_on = evict_chunks({}) || slot_.host_bytes.load() > before;
    uint64_t now = wire::now_ns();
    mine_.refused_ns.store(now);
    mine_.refusal.store(has_got_on ? wire::none_refused : residence.eviction.refusal());
    next_try_ns_ = now + (has_got_on ? kSoonNs : kRetryNs);
    set_where(wire::evicted);
    show();
}

bool Mover::may_restore() {
    if (is_paused_ || is_over_limit_) return false;
    wire::Segment& segment = membership_.segment();
    MovableBytes bytes = movable_bytes();
    uint32_t hopeless = 0;
    bool may = true;
    for (int gpu = 0; gpu < wire::kGpus; ++gpu) {
        if (!bytes.absent[gpu]) continue;
        std::unique_ptr<Crowd> crowd = see_crowd(segment, gpu, Place{&membership_, device_of_gpu(gpu), gpu}.total());
        const arbiter::Tenant* shown = crowd ? crowd->find(number_of(segment, slot_)) : nullptr;
        if (!shown) {
            may = false;
            continue;
        }
        arbiter::Tenant self = *shown;
        self.wanted = bytes.absent[gpu] + needed_bytes(gpu);
        above_[gpu] = has_turned_ ? UINT64_MAX : arbiter::taken_above(crowd->tenants, crowd->count, self);
        bool is_next = crowd->is_next(self), is_known = crowd->gpu.capacity != 0;
        if (is_known && !crowd->has_hope(self)) hopeless |= 1u << gpu;
        bool is_short = is_known && crowd->missing(self) != 0;
        if (is_next && is_short) crowd->wake_chosen(segment, self);
        may &= is_next && !is_short;
    }
    hopeless_ = hopeless;
    return may;
}

// All of it or nothing, on every GPU.
bool Mover::claim() {
    MovableBytes bytes = movable_bytes();
    for (int gpu = 0; gpu < wire::kGpus; ++gpu) {
        claimed_[gpu] = bytes.absent[gpu];
        if (!claimed_[gpu]) continue;
        Place place{&membership_, device_of_gpu(gpu), gpu};
        count(place, claimed_[gpu]);
        // Other tenants shall know that it can be evicted again.
        slot_.memory[gpu].movable_bytes.fetch_add(claimed_[gpu]);
        if (is_within_capacity(place)) continue;
        for (int back = 0; back <= gpu; ++back)
            if (claimed_[back]) give({&membership_, 0, back}, claimed_[back]);
        show();
        return false;
    }
    return true;
}

void Mover::restore() {
    UnderWay under_way;
    if (!claim()) return;
    for (int gpu = 0; gpu < wire::kGpus; ++gpu) show_evicted(slot_, gpu, 0);
    set_where(wire::restoring);
    uint64_t began = wire::now_ns();
    bool back = false;
    {
        ResidenceLocked locked;
        back = residence.eviction.restore(*this);
    }
    std::fill(above_, above_ + wire::kGpus, 0);
    has_turned_ = !back;
    MovableBytes now = movable_bytes();
    uint64_t absent = 0;
    for (int gpu = 0; gpu < wire::kGpus; ++gpu) {
        show_evicted(slot_, gpu, now.absent[gpu]);
        if (now.absent[gpu]) give({&membership_, 0, gpu}, now.absent[gpu]);
        absent += now.absent[gpu];
    }
    slot_.host_bytes.store(absent);
    if (!back) {
        next_try_ns_ = wire::now_ns() + kRetryNs;
        set_where(wire::evicted);
        show();
        return;
    }
    mine_.eviction_ns.store(evicting_ns_);
    mine_.transfer_ns.store(evicting_ns_ + (wire::now_ns() - began));
    mine_.since_ns.store(wire::now_ns());
    mine_.waiting_since_ns.store(0);
    for (auto& on_one : slot_.memory) on_one.wanted_bytes.store(0);
    set_where(wire::resident);
    show();
    step_boundary::begin_step();
    move_barrier::lower();
}

void Mover::show() {
    ResidenceLocked locked;
    MovableBytes bytes = movable_bytes();
    bool is_evicted = where_ == wire::evicted;
    bool will_restore = is_evicted && !is_paused_ && !is_over_limit_;
    // Others may have written anything there.
    if (mine_.where.load() != where_) set_where(where_);
    mine_.paused.store(is_paused_);
    uint64_t wanted = 0;
    for (int gpu = 0; gpu < wire::kGpus; ++gpu) {
        show_evicted(slot_, gpu, bytes.absent[gpu]);
        slot_.memory[gpu].movable_bytes.store(bytes.all[gpu] - bytes.absent[gpu]);
        if (!is_evicted) continue;
        uint64_t here = will_restore && bytes.absent[gpu] ? bytes.absent[gpu] + needed_bytes(gpu) : 0;
        wanted += here;
        // One that cannot be served on one of its GPUs lets the others pass on all of them.
        slot_.memory[gpu].wanted_bytes.store(!hopeless_ || hopeless_ >> gpu & 1 ? here : 0);
    }
    if (!is_evicted) return;
    // Also where it has nothing on the host: what it wanted before must not keep others out.
    mine_.wanted_hard.store(0);
    mine_.wanted_bytes.store(wanted);
}

// One that memory is copied in; under the residence's lock.
CUcontext a_context() {
    for (uint32_t i = 0; i < residence.chunks.count(); ++i)
        if (!residence.chunks[i].pinned) return residence.chunks[i].context;
    return nullptr;
}

// The lock is for the contexts, which must not end meanwhile. The program gets it between two blocks.
void shrink_pool_to(uint64_t bytes) {
    for (bool gave = true; gave;) {
        ResidenceLocked locked;
        gave = residence.pool.give_back_one(bytes);
    }
}

// Where GPU memory is short, the host memory for an eviction is pinned ahead: that takes longer than the copying.
bool Mover::prepare() {
    uint64_t all = 0, now = wire::now_ns();
    MovableBytes bytes = movable_bytes();
    for (uint64_t on_one : bytes.all) all += on_one;
    see_crowds([&](int, const Crowd& crowd, const arbiter::Tenant&) {
        if (arbiter::is_crowded(crowd.gpu, crowd.tenants, crowd.count)) crowded_ns_ = now;
    });
    // A job that frees and allocates again finds it there.
    if (residence.pool.bytes() <= all + 2 * HostPool::kBlock)
        needed_ns_ = now;
    else if (now - needed_ns_ > kNotNeededForNs)
        shrink_pool_to(all);
    if (!crowded_ns_ || now - crowded_ns_ > kCrowdedForNs || residence.pool.bytes() >= all) return false;
    if (now < prepare_from_ns_) return false;
    prepare_from_ns_ = now + kNoMoreForNs;
    // A part of it would help no tenant.
    if (!residence.pool.fits(all)) return false;
    residence.pool.touch_block();
    ResidenceLocked locked;  // likewise
    CUcontext context = a_context();
    bool good = context && driver.cuCtxSetCurrent(context) == CUDA_SUCCESS && residence.pool.prepare(all);
    if (good) prepare_from_ns_ = 0;
    return good;
}

void* mover_main(void* membership) {
    pthread_setname_np(pthread_self(), "cotenant-mover");
    Mover(*static_cast<Membership*>(membership)).run();
    phase.store(stopped);
    return nullptr;
}

void forget_in_child() {
    phase.store(not_started);
    where_now.store(wire::resident);
    asked_pause.store(0);
}
LISTEN(AtFork, ForkStep::mover, forget_in_child)

}  // namespace

void start_moving(Membership& membership) {
    if (phase.load(std::memory_order_relaxed) != not_started || !Still::memory_moves.load()) return;
    uint32_t before = not_started;
    if (!phase.compare_exchange_strong(before, moving)) return;
    if (start_own_thread(mover_main, &membership)) return;
    // Nobody will ever move it.
    phase.store(stopped);
    membership.slot().residence.where.store(wire::pinned);
}

namespace {

// No call of the driver is under way afterwards, if it ends within a few seconds.
void stop_moving() {
    uint32_t before = moving;
    if (!phase.compare_exchange_strong(before, stopping)) return;
    for (int tries = 0; tries < kMostTriesToStop && phase.load() == stopping; ++tries) {
        wake_mover();  // again: it may miss the bell
        wire::wait_here(phase, stopping, 10 * kMillisecond);
    }
    step_boundary::let_go();
    // A program that ends while it is paused does not wait for its memory; nor does one whose mover does not return.
    Membership* membership = Membership::current_if_joined();
    if (membership && where_now.load() != wire::resident)
        move_barrier::lower_at_exit();
    else
        move_barrier::lower();
}
LISTEN(AtExit, MembershipStep::mover, stop_moving)

void take_request(Membership& membership, const wire::Asked& asked) {
    if (asked.pause) {
        asked_pause.store(asked.pause);
        start_moving(membership);
    }
    if (asked.pause || asked.memory) wake_mover();
}
LISTEN(AtRequest, MembershipStep::mover, take_request)

}  // namespace

}  // namespace tenant
