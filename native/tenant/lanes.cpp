#include "tenant/lanes.h"

#include <algorithm>
#include <cstring>

#include "admission/admission.h"
#include "tenant/fork.h"
#include "tenant/gate.h"
#include "tenant/locked.h"
#include "tenant/settings.h"
#include "wire/border.h"
#include "wire/clock.h"
#include "wire/gates.h"

namespace tenant {

namespace {

// A tenant of the process that has work and in whose streams nothing has happened for so long may be waiting for
// another one in a way that nobody sees: a kernel that spins, a host function.
constexpr uint64_t kStandstillNs = 250000000;

Lock lanes_lock{Rank::lanes};

void forget_in_child() { lanes_lock.renew(); }
LISTEN(AtFork, ForkStep::lanes, forget_in_child)

uint32_t class_of_process() {
    Membership* own = Membership::current_if_joined();
    return own ? wire::class_of(own->slot()) : static_cast<uint32_t>(class_from_environment());
}

bool is_like(const LaneTerms& one, const LaneTerms& other) {
    return one.tenant_class == other.tenant_class && one.weight == other.weight && one.slowdown == other.slowdown &&
           one.floor == other.floor;
}

// `seen`: the calling watcher's. Launches are counted by the threads themselves; only what has finished needs the other
// tenant's watcher, which may have no processor for a while.
bool stands_still(Membership& other, Membership::Launches& seen, int gpu, uint64_t now) {
    const wire::Figures& figures = other.slot().gpus[gpu].figures;
    uint64_t count = figures.kernels.load() + figures.graphs.load() + figures.copies.load() +
                     figures.memory_ops.load() + figures.host_calls.load();
    if (count != seen.count) seen = {count, now};
    // Which may be later than `now` is.
    return std::max(other.moved_ns(gpu), seen.since_ns) + kStandstillNs < now;
}

bool may_be_a_lanes(CUstream handle) {
    unsigned int flags = 0;
    return driver.cuStreamGetFlags(handle, &flags) == CUDA_SUCCESS && flags & CU_STREAM_NON_BLOCKING;
}

}  // namespace

int open_lane(const LaneTerms& terms) {
    Locked locked(lanes_lock);
    uint32_t count = Membership::lanes_open();
    for (uint32_t i = 0; i < count; ++i)
        if (strcmp(Membership::lane_terms(i).name, terms.name) == 0)
            return is_like(Membership::lane_terms(i), terms) ? static_cast<int>(i) + 1 : other_terms;
    if (terms.tenant_class >= wire::kClasses || terms.tenant_class < class_of_process()) return class_above;
    return Membership::add_lane(terms);
}

int enter_lane(int lane) {
    int before = static_cast<int>(lane_of_thread);
    if (lane >= 0 && static_cast<uint32_t>(lane) <= Membership::lanes_open())
        lane_of_thread = static_cast<uint32_t>(lane);
    return before;
}

int64_t escaped_from(int lane) {
    if (lane < 1 || static_cast<uint32_t>(lane) > Membership::lanes_open()) return -1;
    Membership* membership = Membership::lane_if_joined(static_cast<uint32_t>(lane) - 1);
    if (!membership) return Membership::is_refused(static_cast<uint32_t>(lane) - 1) ? -1 : 0;
    uint64_t sum = 0;
    for (const wire::OnGpu& here : membership->slot().gpus) sum += here.figures.escaped.load();
    return static_cast<int64_t>(sum);
}

Membership* holder_of(StreamKey key) {
    Membership* holder = nullptr;
    Membership::for_each([&](Membership& one) {
        if (!holder && one.streams.find(key)) holder = &one;
    });
    return holder;
}

bool passes_gates(Membership& membership) {
    return admission::is_gated(wire::rule_of(membership.segment().header), wire::class_of(membership.slot()));
}

Launcher launcher_into(Membership& own, StreamKey key, CUstream handle) {
    Membership* lane = Membership::of_thread(&own);
    if (lane->streams.find(key)) return {lane};
    bool is_lane = lane != &own;
    if (is_lane && (key & kDefaultStream || !may_be_a_lanes(handle))) return {&own, lane};
    Membership* before = holder_of(key);
    if (!before || before == lane) return {lane};
    StreamState* state = nullptr;
    {
        MembershipLocked locked(*before);
        state = before->streams.find(key);
        before->streams.remove(key);
    }
    return {lane, nullptr, passes_gates(*before) ? before : nullptr, state};
}

void GoingThrough::begin(Membership& gated, int gpu) {
    uint64_t now = wire::now_ns();
    gated_ = &gated;
    gpu_ = gpu;
    word_ = gated.let_through.begin(gated.progress, now);
    if (!word_) return;
    // Its watcher sees to it from its next look on.
    gated.slot().gpus[gpu].below_floor.store(1);
    if (!gated.is_leaving()) wire::refresh_gate(gated.segment(), gated.index(), gpu);
}

void GoingThrough::complete(CUstream stream, CUcontext context) {
    if (!word_) return;
    CUdeviceptr words = context ? gated_->gate_places(context, gpu_).words : 0;
    CUstreamBatchMemOpParams past = write_value(words + word_ * sizeof(uint32_t), 0);
    if (!words || driver.cuStreamBatchMemOp_v2(stream, 1, &past, 0) != CUDA_SUCCESS)
        gated_->let_through.cancel(gated_->progress, word_);
}

bool is_let_through(Membership& membership, int gpu, uint64_t now) {
    if (!Membership::lanes_open()) return false;
    if (membership.let_through.is_waited_for(membership.progress, now)) return true;
    uint32_t tenant_class = membership.terms.tenant_class;
    bool is = false;
    int number = 0;
    Membership::for_each([&](Membership& other) {
        Membership::Launches& seen = membership.launches_seen[number++ % (1 + Membership::kMostLanes)][gpu];
        if (&other == &membership) return;
        wire::Slot& slot = other.slot();
        // What the lane has queued must end before the process's memory can go.
        is |= !other.is_lane() && slot.residence.where.load() == wire::evicting;
        bool is_above = wire::class_of(slot) < tenant_class && slot.gpus[gpu].busy.load();
        is |= is_above && stands_still(other, seen, gpu, now);
    });
    return is;
}

}  // namespace tenant
