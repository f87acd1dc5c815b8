#include "tenant/membership.h"

#include <algorithm>

#include "tenant/captures.h"
#include "tenant/context.h"
#include "tenant/green_contexts.h"
#include "tenant/notice.h"
#include "tenant/settings.h"
#include "wire/border.h"
#include "wire/clock.h"
#include "wire/gates.h"
#include "wire/sleep.h"

namespace tenant {

namespace {

size_t gate_offset(int gpu) {
    return offsetof(wire::Slot, gpus) + sizeof(wire::OnGpu) * static_cast<size_t>(gpu) + offsetof(wire::OnGpu, gate);
}

}  // namespace

void Membership::become_busy(int gpu, bool wants_turn) {
    if (is_leaving()) return;  // the slot may be another tenant's by now
    wire::OnGpu& here = slot_->gpus[gpu];
    if (!here.busy.load()) {
        here.figures.bursts.fetch_add(1, std::memory_order_relaxed);
        burst_began_ns_[gpu].store(wire::now_ns(), std::memory_order_relaxed);
        due_.begin_burst(gpu);
    }
    // While it was idle it has not looked who is there, nor on a GPU that it has not used. Before it is busy: a thread
    // that finds it so passes gates.
    company.set(gpu, finds_company(gpu));
    wire::go_busy(*segment_, index_, gpu, wants_turn ? how_ready(gpu) : wire::not_ready);
    if (watcher_sleep.load() == soundly) wake_watcher();
}

// Of one whose gates others may close. In a shared segment only the watcher knows who is there.
bool Membership::finds_company(int gpu) {
    bool is_gated = admission::is_gated(wire::rule_of(segment_->header), wire::class_of(*slot_));
    if (!is_gated || wire::is_shared(*segment_)) return true;
    return wire::has_company(*segment_, index_, gpu, wire::others_of(*segment_, index_, gpu));
}

bool Membership::do_due(const StreamState& state) {
    Due::Taken taken = due_.take(state.gpu);
    if (!below.has(state.gpu) || captures.load()) return false;
    Hold& hold = holds[state.gpu];
    if (taken.gap) hold.saw_gap();
    if (taken.starts) {
        hold.begin_burst();
        if (breakdown.begin(state, wire::now_ns()) && watcher_sleep.load()) wake_watcher();
    }
    return to_hold.has(state.gpu) && hold.is_due() && wire::is_cut_below_on(*segment_, index_, state.gpu);
}

void Membership::hold(const StreamState& state) {
    NotCancelled with_the_lock;
    // While the watcher looks, say: at the next launch, then.
    if (!try_lock()) return ask_for_hold(state.gpu);
    if (!captures.load()) holds[state.gpu].fill(state.context);
    unlock();
}

void Membership::become_copying(int gpu) {
    if (!is_leaving()) wire::begin_copying(*segment_, index_, gpu);
}

void Membership::become_ready(int gpu) {
    if (!is_leaving()) wire::go_ready(*segment_, index_, gpu, how_ready(gpu));
}

void Membership::note_empty(int gpu, uint64_t since_ns, uint64_t executed_ns) {
    empty_[gpu].executed_ns.store(executed_ns, std::memory_order_relaxed);
    empty_[gpu].since_ns.store(since_ns, std::memory_order_relaxed);
}

// A value of wire::Ready, of one that passes gates.
uint32_t Membership::how_ready(int gpu) {
    constexpr uint64_t kMostUs = 1000000;
    if (brief.has(gpu)) return wire::briefly;
    uint64_t since_ns = empty_[gpu].since_ns.load(std::memory_order_relaxed), now_ns = wire::now_ns();
    if (!since_ns || now_ns < since_ns) return wire::ready;
    wire::ReadyEquals others = wire::ready_equals(*segment_, index_, gpu);
    if (!others.count) return wire::ready;
    uint64_t executed_ns = empty_[gpu].executed_ns.load(std::memory_order_relaxed);
    // The hardware's slices part processes. In a shared segment only the watcher knows who is there.
    bool has_slices = !is_lane() && !slot_->mps_daemon.load(std::memory_order_relaxed);
    if (has_slices && !wire::is_shared(*segment_)) {
        admission::Returning returning{executed_ns,
                                       now_ns - since_ns,
                                       slot_->gpus[gpu].turn_key.load(),
                                       others.least_key_ns,
                                       wire::others_of(*segment_, index_, gpu).above,
                                       others.any_beside,
                                       others.count};
        if (admission::runs_beside(returning)) return wire::beside;
    }
    uint32_t switch_us = slot_->gpus[gpu].switch_us.load(std::memory_order_relaxed);
    uint64_t brief_ns =
        admission::brief_ns(executed_ns, now_ns - since_ns,
                            switch_us ? uint64_t{switch_us} * 1000 : admission::kAssumedSwitchNs, others.count);
    if (brief_ns == admission::kNotBrief) return wire::ready;
    return wire::briefly + static_cast<uint32_t>(std::min(brief_ns / 1000, kMostUs));
}

CUdeviceptr Membership::copy_gate_of(StreamState& state) {
    CUdeviceptr gate = gate_of(state);
    if (!gate) return 0;
    auto gpu = static_cast<size_t>(static_cast<int>(state.gpu));
    return gate - gate_offset(state.gpu) + offsetof(wire::Slot, copy_gates) + gpu * sizeof(wire::Flag);
}

Membership::GatePlaces Membership::gate_places(CUcontext context, int gpu) {
    InContext there(context);
    if (!there.is_there()) return {0, 0};
    Locked locked(lock_);
    GpuPages::Addresses at = pages_.of(owner_of(context), *slot_, progress);
    return {at.slot ? at.slot + gate_offset(gpu) : 0, at.words};
}

CUdeviceptr Membership::map_gate_of(StreamState& state) {
    if (state.gate == kCannotMap) return 0;
    InContext there(state.context);
    if (!there.is_there()) return 0;
    Locked locked(lock_);
    // Another thread may have been here, and the GPU may have written into the stream's word since.
    if (CUdeviceptr mapped = state.gate) return mapped == kCannotMap ? 0 : mapped;
    GpuPages::Addresses at = pages_.of(owner_of(state.context), *slot_, progress);
    if (!at.slot) {
        state.gate = kCannotMap;
        notice_once("the driver cannot map %s (CUDA error %d; is it on a tmpfs such as /dev/shm?)",
                    segment_from_environment(), pages_.refusal());
        return 0;
    }
    if (at.words) progress.begin(state);
    state.progress_word = at.words ? at.words + state.number * sizeof(uint32_t) : 0;
    state.gate = at.slot + gate_offset(state.gpu);
    return state.gate;
}

Samples::Sample* Membership::begin_sample(Shape shape, const StreamState& state, bool is_kernel, float scale) {
    Samples::Sample* sample = samples.begin(shape, state.context, state.handle, is_kernel, scale);
    // The first contexts have all the pairs: the next operation of this one will find some.
    if (!sample) {
        NotCancelled with_the_lock;
        if (try_lock()) {
            samples.lend_to(state.context);
            unlock();
        }
    }
    return sample;
}

int Membership::gpu_of(CUcontext context) {
    CUdevice device = 0;
    CUuuid uuid;
    InContext there(context);
    if (!there.is_there() || driver.cuCtxGetDevice(&device) != CUDA_SUCCESS) return -1;
    // The second version tells MIG instances apart.
    if (driver.cuDeviceGetUuid_v2(&uuid, device) != CUDA_SUCCESS) return -1;
    int gpu = wire::gpu_number(*segment_, reinterpret_cast<const uint8_t*>(uuid.bytes));
    if (gpu < 0) notice_once("%s does not know GPU %d", segment_from_environment(), device);
    if (gpu >= 0) used_gpus.add(gpu);
    return gpu;
}

void Membership::mark_end_of_work(StreamState& state) {
    if (captures.load(std::memory_order_acquire)) return;
    CUevent event = state.last_work.load(std::memory_order_relaxed);
    if (!event && driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return;
    driver.cuEventRecord(event, state.handle);
    // An event that was never recorded reads as done: only now may the watcher ask for it.
    state.last_work.store(event, std::memory_order_release);
}

void Membership::mark_end_of_copy(StreamState& state) {
    bool is_marked = below.has(state.gpu) && gate_of(state) && state.progress_word && Progress::mark_copy(state);
    if (!is_marked) state.bus_mark.store(0);
}

void Membership::beat(uint64_t now) {
    bool was_stale = wire::is_stale(*segment_, slot_->heartbeat_ns.exchange(now));
    // We were stopped, and others have rightly gone ahead.
    for (int gpu = 0; was_stale && gpu < wire::kGpus; ++gpu)
        if (slot_->gpus[gpu].busy.load()) wire::go_busy(*segment_, index_, gpu);
}

void Membership::wake_watcher() {
    watcher_sleep.store(awake);
    wire::wake_here(watcher_sleep);
}

}  // namespace tenant
