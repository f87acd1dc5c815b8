// The watcher's loop: when have our streams run empty, and has somebody above us died with our gates closed?
//
//   busy           every 50 to 200 us: are the streams empty, and have they been for the grace period?
//   below others   every 20 ms: bury the dead, look at our gates again; while operations are being timed, every 2 ms
//   idle           a little longer at the fast pace (a burst seldom comes alone), then asleep until the next burst,
//                  with a look now and then whether somebody asked for another class
#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "tenant/membership.h"
#include "tenant/time_slice.h"

namespace tenant {

namespace {

constexpr uint64_t kMillisecond = 1000000;
constexpr uint64_t kCareNs = 20 * kMillisecond;
constexpr uint64_t kTimingNs = 2 * kMillisecond;
constexpr uint64_t kLookNs = 250 * kMillisecond;
constexpr uint64_t kLingerNs = 20 * kMillisecond;
constexpr uint64_t kShortestNap = 50000, kLongestNap = 200000;

}  // namespace

void Membership::watch() {
    prctl(PR_SET_TIMERSLACK, 1000UL, 0, 0, 0);
    CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    driver.cuThreadExchangeStreamCaptureMode(&relaxed);
    uint64_t last_busy = 0, last_care = 0;
    while (!leaving_.load()) {
        uint64_t now = wire::now_ns();
        if (uint32_t asked = slot_->asked_class.exchange(0)) change_class(asked - 1);
        bool has_classes_above = slot_->tenant_class.load() != wire::production;
        if (has_classes_above && now - last_care >= kCareNs) {
            last_care = now;
            wire::bury_the_dead(*segment_);
            for (int gpu = 0; gpu < wire::kGpus; ++gpu)
                if (used_gpus_.load() >> gpu & 1) wire::refresh_gate(*segment_, index_, gpu);
        }
        bool timing = samples.any_on_its_way();
        if (timing && try_lock()) {
            samples.collect(durations);
            unlock();
        }
        if (is_busy()) {
            last_busy = now;
            beat(now);
            for (int gpu = 0; gpu < wire::kGpus; ++gpu)
                if (slot_->gpus[gpu].busy.load()) look_for_idleness(gpu, now);
            // The longer a burst has lasted, the less it matters to see its end at once; each look takes the driver's
            // lock.
            uint64_t patience = is_pausing() ? 0 : burst_age_ns(now) / 16;
            nap(std::clamp(std::max(grace_ns() / 4, patience), kShortestNap, kLongestNap));
        } else if (now - last_busy < kLingerNs) {
            nap(kLongestNap);
        } else if (has_classes_above) {
            nap(timing ? kTimingNs : kCareNs);
        } else {
            nap(kLookNs);
        }
    }
}

bool Membership::is_busy() const {
    for (const wire::OnGpu& gpu : slot_->gpus)
        if (gpu.busy.load(std::memory_order_relaxed)) return true;
    return false;
}

bool Membership::is_pausing() const {
    for (const Pause& pause : pauses_)
        if (pause.on) return true;
    return false;
}

uint64_t Membership::burst_age_ns(uint64_t now) const {
    uint64_t began = now;
    for (int gpu = 0; gpu < wire::kGpus; ++gpu)
        if (slot_->gpus[gpu].busy.load(std::memory_order_relaxed))
            began = std::min(began, burst_began_ns_[gpu].load(std::memory_order_relaxed));
    return now - began;
}

bool Membership::is_empty(StreamState& state) {
    if (state.key.which > 1) return !state.last_work || driver.cuEventQuery(state.last_work) != CUDA_ERROR_NOT_READY;
    CUcontext current = nullptr;
    driver.cuCtxGetCurrent(&current);
    if (current != state.context && driver.cuCtxSetCurrent(state.context) != CUDA_SUCCESS) return true;
    // An error (a context that has failed) is an end too.
    return driver.cuStreamQuery(state.handle) != CUDA_ERROR_NOT_READY;
}

// `changed`: something was put into a stream since the last look, finished or not.
bool Membership::has_unfinished(int gpu, bool* changed) {
    // Never waits for the lock: its holder may be in the driver, waiting for a gate that only we can see to.
    if (!try_lock()) return true;
    bool unfinished = captures_open.load() != 0;
    streams.for_each([&](StreamState& state) {
        uint64_t issued = state.issued.load();
        if (unfinished || state.gpu != gpu || issued == state.finished) return;
        *changed = true;
        if (is_empty(state))
            state.finished = issued;
        else
            unfinished = true;
    });
    unlock();
    return unfinished;
}

void Membership::beat(uint64_t now) {
    bool was_stale = wire::is_stale(*segment_, slot_->heartbeat_ns.exchange(now));
    // We were stopped, and others have rightly gone ahead.
    for (int gpu = 0; was_stale && gpu < wire::kGpus; ++gpu)
        if (slot_->gpus[gpu].busy.load()) wire::go_busy(*segment_, index_, gpu);
}

uint64_t Membership::grace_ns() const {
    float fallback_us = static_cast<float>(segment_->header.knobs.grace_us.load());
    return static_cast<uint64_t>(grace_.us(fallback_us) * 1000);
}

void Membership::look_for_idleness(int gpu, uint64_t now) {
    Pause& pause = pauses_[gpu];
    bool changed = false;
    if (has_unfinished(gpu, &changed) || changed) {
        if (pause.on) {
            // A pause that was given away ended with the launch that made us busy again.
            uint64_t began = burst_began_ns_[gpu].load();
            uint64_t end = began > pause.since_ns && began < now ? began : now;
            grace_.saw_pause(static_cast<float>(end - pause.since_ns) / 1000);
            slot_->grace_us.store(static_cast<uint32_t>(grace_ns() / 1000));
        }
        pause.on = false;
        return;
    }
    if (!pause.on) pause = {now, true};
    if (now - pause.since_ns < grace_ns()) return;
    slot_->gpus[gpu].busy.store(0);
    // Either a launch in this moment sees that we are idle, or we see the launch.
    if (has_unfinished(gpu, &changed) || changed) {
        become_busy(gpu);
        return;
    }
    wire::reopen_gates_below(*segment_, slot_->tenant_class.load(), gpu);
}

void Membership::nap(uint64_t ns) {
    timespec length{static_cast<time_t>(ns / 1000000000), static_cast<long>(ns % 1000000000)};
    if (ns < kMillisecond || leaving_.load()) {
        clock_nanosleep(CLOCK_MONOTONIC, 0, &length, nullptr);
        return;
    }
    asleep_.store(1);
    if (!leaving_.load() && !is_busy()) syscall(SYS_futex, &asleep_, FUTEX_WAIT_PRIVATE, 1, &length, nullptr, 0);
    asleep_.store(0);
}

void Membership::change_class(uint32_t wanted) {
    uint32_t before = slot_->tenant_class.load();
    if (wanted >= wire::kClasses || wanted == before) return;
    wire::join_class(*segment_, index_, static_cast<wire::Class>(wanted));
    set_time_slice(time_slice_of_class(wanted));
    slot_->time_slice_us.store(time_slice().granted_us);
    for (int gpu = 0; gpu < wire::kGpus; ++gpu) {
        if (!slot_->gpus[gpu].busy.load()) continue;
        // The lowest class keeps nobody waiting, so nothing of it is watched.
        if (wanted + 1 == wire::kClasses)
            slot_->gpus[gpu].busy.store(0);
        else
            wire::go_busy(*segment_, index_, gpu);
        wire::reopen_gates_below(*segment_, std::min(before, wanted), gpu);
    }
}

}  // namespace tenant
