// How a process becomes a tenant, and how it ends: the membership is made at the first work, with a watcher above it.
#include <cstdlib>
#include <new>
#include <string>

#include "tenant/context.h"
#include "tenant/fork.h"
#include "tenant/identity_file.h"
#include "tenant/leave_in_order.h"
#include "tenant/membership.h"
#include "tenant/membership_events.h"
#include "tenant/notice.h"
#include "tenant/own_thread.h"
#include "tenant/report.h"
#include "tenant/settings.h"
#include "tenant/time_slice.h"
#include "tenant/watcher.h"
#include "wire/attached.h"
#include "wire/clock.h"
#include "wire/sleep.h"

namespace tenant {

namespace {

enum Phase : uint32_t { starting, holding, refused, left };

Lock join_lock{Rank::joining};
std::atomic<bool> given_up{false};
std::atomic<bool> has_joined{false};  // this process, or one that it descends from
// A forked child builds its own over it: the parent's, as inherited, belongs to nobody there. The first is the
// process's own; those of lanes that nobody uses are never touched.
alignas(Membership) char storage[1 + Membership::kMostLanes][sizeof(Membership)];

}  // namespace

Membership* Membership::join() {
    look_for_raw_child();
    leave_in_order::stand_aside_if_ending();
    if (given_up.load(std::memory_order_relaxed)) return nullptr;
    // The driver may not have noticed either that its threads are gone: more than the program's own calls is too much.
    if (is_raw_child() && has_joined.load()) {
        given_up.store(true);
        notice_once("this process is a child that was made by a bare clone()");
        return nullptr;
    }
    // A process without a context (a forked child of a CUDA program, say) has no work to share.
    if (!current_context()) return nullptr;

    static std::atomic<bool> registered{false};
    if (!registered.exchange(true)) atexit(leave_at_exit);
    Locked locked(join_lock);
    if (!not_inherited.joined.load() && !given_up.load()) {
        auto* membership = new (storage[0]) Membership;
        std::string why;
        const char* path = segment_from_environment();
        if (!path) why = "COTENANT_SEGMENT is not set (start the program with 'cotenant run')";
        if (path && membership->start(path, &why)) {
            has_joined.store(true);
            not_inherited.joined.store(membership, std::memory_order_release);
        } else {
            given_up.store(true);
            notice_once("%s", why.c_str());
        }
    }
    return not_inherited.joined.load();
}

int Membership::add_lane(const LaneTerms& terms) {
    uint32_t count = lanes_open();
    if (count == kMostLanes) return 0;
    lanes_[count].terms = terms;
    lanes_[count].terms.number = count + 1;
    lanes_open_.store(count + 1, std::memory_order_release);
    return static_cast<int>(count) + 1;
}

// A lane that finds no slot stays with the process's own tenant.
Membership* Membership::join_lane(uint32_t number, Membership* own) {
    if (lanes_[number].refused.load(std::memory_order_relaxed)) return own;
    Membership* joined = start_lane(number, own);
    // A signal's handler finds this lane, or this thread finds the signal.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    leave_in_order::stand_aside_if_ending();
    return joined;
}

Membership* Membership::start_lane(uint32_t number, Membership* own) {
    Lane& lane = lanes_[number];
    Locked locked(join_lock);
    if (Membership* joined = lane.joined.load()) return joined;
    const char* path = segment_from_environment();
    if (given_up.load() || lane.refused.load() || !path) return own;
    auto* membership = new (storage[1 + number]) Membership;
    membership->lane_ = &lane.terms;
    standing_places.count();
    std::string why;
    bool joins = membership->start(path, &why);
    (joins ? lane.joined.store(membership, std::memory_order_release) : lane.refused.store(true));
    return joins ? membership : own;
}

// Each tenant opens the segment for itself: what a process keeps beside a segment is of one slot (wire/attached.h).
bool Membership::start(const char* path, std::string* why) {
    segment_ = wire::open_segment(path, why);
    if (!segment_) return false;
    if (!start_own_thread(watcher_main, this)) {
        *why = "no thread can be started";
        return false;
    }
    while (phase_.load() == starting) wire::wait_here(phase_, starting, 100000000);
    if (phase_.load() == holding) return true;
    *why = std::string(path) + " has no free slot";
    return false;
}

void Membership::forget_in_child() {
    not_inherited.joined.store(nullptr);
    for (Lane& lane : lanes_) {
        lane.joined.store(nullptr);
        lane.refused.store(false);
    }
    standing_places.forget_all();
    in_pieces.store(kNoStream);
    waiting_for_pieces.store(0);
    Hold::waiting_for_all.store(0);
    given_up.store(false);
    lock_.renew();
    wire::ask_clock_again_in_child();
    join_lock.renew();
}

namespace {

LISTEN(AtFork, ForkStep::membership, Membership::forget_in_child)

}  // namespace

void Membership::leave_at_exit() {
    look_for_raw_child();
    tell<AtExit>([](const AtExit& one) { one.act(); });
    // First: a thread that goes on launching passes through from here on, and must not join anew. What one of them has
    // still in its hands (this object, the segment's mapping) stays as long as the process.
    given_up.store(true);
    if (Membership* membership = not_inherited.joined.exchange(nullptr)) membership->leave();
    for (Lane& lane : lanes_)
        if (Membership* membership = lane.joined.exchange(nullptr)) membership->leave();
}

void Membership::leave() {
    write_report(*slot_, terms);
    leaving_.store(1);
    wake_watcher();
    // The watcher leaves the slot by itself; if it is stuck in the driver, the kernel frees the slot when we end.
    for (int tries = 0; tries < 20 && phase_.load() == holding; ++tries) wire::wait_here(phase_, holding, 10000000);
}

void Membership::introduce() {
    slot_ = &segment_->slot(index_);
    terms.introduce(*slot_, lane_);
    // The context that brought us here has its channels already.
    slot_->time_slice_us.store(time_slice().granted_us);
    slot_->time_slice_refused.store(time_slice().refused);
    // Memory, and what escapes the interposer altogether, are the process's.
    if (!is_lane()) tell<AtJoin>([&](const AtJoin& one) { one.act(*segment_, *slot_); });
    if (has_identity_file()) wire::attached(*segment_).highest_class = class_from_environment();
    wire::join_class(*segment_, index_,
                     lane_ ? static_cast<wire::Class>(lane_->tenant_class) : class_from_environment());
    terms.tenant_class = wire::class_of(*slot_);
}

// It has a stack of its own (own_thread.h).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wframe-larger-than="
void* Membership::watcher_main(void* self) {
    auto* membership = static_cast<Membership*>(self);
    pthread_setname_np(pthread_self(), "cotenant");
    auto enter = [&](Phase phase) {
        membership->phase_.store(phase);
        wire::wake_here(membership->phase_);
    };
    membership->index_ =
        wire::take_slot(*membership->segment_, membership->is_lane() ? wire::Self::thread : wire::Self::process);
    if (membership->index_ < 0) {
        enter(refused);
        return nullptr;
    }
    membership->introduce();
    lane_of_thread = membership->terms.lane;
    // It reads the environment, as all that is made up to here: the thread that joins waits meanwhile.
    Watcher watcher(*membership);
    enter(holding);
    watcher.watch();
    wire::leave_slot(*membership->segment_, membership->index_);
    enter(left);
    return nullptr;
}
#pragma GCC diagnostic pop

}  // namespace tenant
