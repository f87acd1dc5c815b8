#include "tenant/memory/postponed.h"

#include "tenant/context.h"
#include "tenant/membership.h"
#include "tenant/memory/pools.h"
#include "tenant/memory/residence.h"

namespace tenant {

namespace {

struct Postponed {
    CUdeviceptr pointer = 0;
    uint64_t bytes = 0;
    CUevent reached = nullptr;  // null: freed during a capture
    CUcontext context = nullptr;
    CUstream stream = nullptr;
};

constexpr uint32_t kMost = 4096;
constexpr uint32_t kMostEvents = 64;

// Guarded by the residence's lock.
Postponed list[kMost];
std::atomic<uint32_t> waiting{0};
struct Spare {
    CUevent event;
    CUcontext context;
} spares[kMostEvents];
uint32_t spare_count = 0;

CUevent take_event(CUcontext context) {
    for (uint32_t i = 0; i < spare_count; ++i) {
        if (spares[i].context != context) continue;
        CUevent event = spares[i].event;
        spares[i] = spares[--spare_count];
        return event;
    }
    CUevent event = nullptr;
    return driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS ? event : nullptr;
}

void give_event(CUevent event, CUcontext context) {
    if (!event) return;
    if (spare_count < kMostEvents)
        spares[spare_count++] = {event, context};
    else
        driver.cuEventDestroy_v2(event);
}

// All that was queued in a context when something was freed there, and what came later.
bool has_ended(CUcontext context) {
    InContext there(context);
    return there.is_there() && driver.cuCtxSynchronize() == CUDA_SUCCESS;
}

void remove(uint32_t i) {
    give_event(list[i].reached, list[i].context);
    list[i] = list[waiting.load() - 1];
    waiting.fetch_sub(1);
}

// The legacy default stream is one for all; a per-thread one cannot be told by its handle.
CUstream order_of(CUstream stream, bool per_thread_default) {
    if (!stream && per_thread_default) return CU_STREAM_PER_THREAD;
    return stream ? stream : CU_STREAM_LEGACY;
}

}  // namespace

bool capture_is_open() {
    Membership* membership = Membership::current_if_joined();
    return membership && membership->captures_open.load(std::memory_order_acquire) != 0;
}

bool pool_is_movable(CUstream stream, bool per_thread_default) {
    // It may be the first thing that the process does: whether its memory moves is settled when it becomes a tenant.
    if (!Membership::current() || !Still::memory_moves.load(std::memory_order_relaxed)) return false;
    if (is_captured(stream, per_thread_default)) return false;
    CUdevice device = 0;
    CUmemoryPool now = nullptr, its_own = nullptr;
    return driver.cuCtxGetDevice(&device) == CUDA_SUCCESS && driver.cuDeviceGetMemPool(&now, device) == CUDA_SUCCESS &&
           driver.cuDeviceGetDefaultMemPool(&its_own, device) == CUDA_SUCCESS && now == its_own;
}

bool postpone_free(CUdeviceptr pointer) {
    ResidenceLocked locked;
    if (waiting.load() == kMost) return false;
    list[waiting.fetch_add(1)] = {pointer, 0, nullptr, current_context(), nullptr};
    return true;
}

CUresult postpone_free_in(CUdeviceptr pointer, CUstream stream, bool per_thread_default) {
    ResidenceLocked locked;
    MovableRange range{};
    CUcontext context = current_context();
    if (!movable_range(pointer, &range) || range.base != pointer) return CUDA_ERROR_INVALID_VALUE;
    for (uint32_t i = 0; i < waiting.load(); ++i)
        if (list[i].pointer == pointer) return CUDA_ERROR_INVALID_VALUE;
    CUstream order = order_of(stream, per_thread_default);
    CUevent reached = waiting.load() < kMost ? take_event(context) : nullptr;
    CUresult result = reached ? driver.cuEventRecord(reached, order) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        list[waiting.fetch_add(1)] = {pointer, range.bytes, reached, context, order};
    else
        give_event(reached, context);
    return result;
}

CUdeviceptr take_again(uint64_t bytes, CUstream stream, bool per_thread_default) {
    CUstream order = order_of(stream, per_thread_default);
    if (order == CU_STREAM_PER_THREAD || waiting.load(std::memory_order_relaxed) == 0) return 0;
    ResidenceLocked locked;
    CUcontext context = current_context();
    for (uint32_t i = waiting.load(); i-- > 0;) {
        const Postponed& one = list[i];
        if (one.bytes != bytes || one.stream != order || one.context != context) continue;
        CUdeviceptr pointer = one.pointer;
        remove(i);
        return pointer;
    }
    return 0;
}

void free_postponed() {
    if (waiting.load(std::memory_order_relaxed) == 0 || capture_is_open()) return;
    ResidenceLocked locked;
    for (uint32_t i = waiting.load(); i-- > 0;) {
        CUdeviceptr pointer = list[i].pointer;
        bool reached =
            list[i].reached ? driver.cuEventQuery(list[i].reached) != CUDA_ERROR_NOT_READY : has_ended(list[i].context);
        if (!reached) continue;
        remove(i);
        Giving giving(pointer);
        giving.result(give_back_movable(pointer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
    }
}

void forget_postponed_of(CUcontext context) {
    for (uint32_t i = waiting.load(); i-- > 0;) {
        if (list[i].context != context) continue;
        list[i] = list[waiting.load() - 1];
        waiting.fetch_sub(1);
    }
    for (uint32_t i = spare_count; i-- > 0;)
        if (spares[i].context == context) spares[i] = spares[--spare_count];
}

void forget_postponed_in_child() {
    waiting.store(0);
    spare_count = 0;
}

}  // namespace tenant
