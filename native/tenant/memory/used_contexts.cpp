#include "tenant/memory/used_contexts.h"

#include <atomic>

#include "tenant/context_end.h"
#include "tenant/fork.h"
#include "tenant/memory/move_barrier.h"

namespace tenant {

namespace used_contexts {

namespace {

constexpr uint32_t kMost = 256;

struct Used {
    std::atomic<CUcontext> context{nullptr};
    // The mover's own. The event goes with its context.
    CUevent end_of_work = nullptr;
    bool is_recorded = false;
} used[kMost];
std::atomic<uint32_t> count{0};  // no entry beyond
std::atomic<bool> too_many{false};

void forget_in_child() {
    for (Used& one : used) {
        one.context.store(nullptr);
        one.end_of_work = nullptr;
    }
    count.store(0);
    too_many.store(false);
}
LISTEN(AtFork, ForkStep::used_contexts, forget_in_child)

void forget(CUcontext context) {
    for (Used& one : used) {
        if (one.context.load() != context) continue;
        one.end_of_work = nullptr;
        one.is_recorded = false;
        one.context.store(nullptr);
    }
}
LISTEN(AtContextEnd, ContextEndStep::used_contexts, forget)

Drained look_at(Used& one, CUcontext context) {
    if (!one.is_recorded) {
        if (driver.cuCtxSetCurrent(context) != CUDA_SUCCESS) return Drained::driver_failed;
        if (!one.end_of_work && driver.cuEventCreate(&one.end_of_work, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
            one.end_of_work = nullptr;
            return Drained::driver_failed;
        }
        CUresult recorded = driver.cuCtxRecordEvent(context, one.end_of_work);
        // Drivers before CUDA 12.5 can only be waited in: all streams that are watched are empty by now.
        if (recorded == CUDA_ERROR_NOT_SUPPORTED)
            return driver.cuCtxSynchronize() == CUDA_SUCCESS ? Drained::yes : Drained::driver_failed;
        if (recorded != CUDA_SUCCESS) return Drained::driver_failed;
        one.is_recorded = true;
    }
    CUresult result = driver.cuEventQuery(one.end_of_work);
    if (result == CUDA_ERROR_NOT_READY) return Drained::not_yet;
    return result == CUDA_SUCCESS ? Drained::yes : Drained::driver_failed;
}

}  // namespace

void note(CUcontext context) {
    if (!context || !Still::memory_moves.load(std::memory_order_relaxed)) return;
    uint32_t seen = count.load(std::memory_order_acquire);
    for (uint32_t i = 0; i < seen; ++i)
        if (used[i].context.load(std::memory_order_relaxed) == context) return;
    // Two threads may enter one twice: it is looked at twice.
    for (uint32_t i = 0; i < kMost; ++i) {
        CUcontext none = nullptr;
        if (!used[i].context.compare_exchange_strong(none, context)) continue;
        for (uint32_t before = count.load(); before <= i && !count.compare_exchange_weak(before, i + 1);) {
        }
        return;
    }
    too_many.store(true);
}

void begin_to_drain() {
    for (Used& one : used) one.is_recorded = false;
}

Drained have_drained() {
    // Not all are known: nothing can be said of the others.
    if (too_many.load()) return Drained::not_yet;
    for (uint32_t i = 0; i < count.load(); ++i) {
        CUcontext context = used[i].context.load();
        Drained drained = context ? look_at(used[i], context) : Drained::yes;
        if (drained != Drained::yes) return drained;
    }
    return Drained::yes;
}

}  // namespace used_contexts

}  // namespace tenant
