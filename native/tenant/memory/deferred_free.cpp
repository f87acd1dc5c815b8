#include "tenant/memory/deferred_free.h"

#include <new>

#include "tenant/captures.h"
#include "tenant/context.h"
#include "tenant/context_end.h"
#include "tenant/fork.h"
#include "tenant/green_contexts.h"
#include "tenant/membership.h"
#include "tenant/memory/pools.h"
#include "tenant/memory/residence.h"
#include "tenant/memory/table.h"
#include "tenant/relaxed.h"
#include "wire/clock.h"
#include "wire/sleep.h"

namespace tenant {

namespace {

struct Order;

struct DeferredFree {
    CUdeviceptr pointer = 0;
    uint64_t bytes = 0;
    CUevent reached = nullptr;
    Order* order = nullptr;
    DeferredFree *older = nullptr, *newer = nullptr;              // in its order
    DeferredFree *older_alike = nullptr, *newer_alike = nullptr;  // of these, as large
};

// What was freed in one stream, or after captures in one context.
struct Order {
    uint64_t key = 0;
    CUcontext context = nullptr;
    bool is_open = true;  // the stream may still take something again
    DeferredFree *oldest = nullptr, *newest = nullptr;
    MemoryTable<DeferredFree*> latest;  // by size
    Order *previous = nullptr, *next = nullptr;
};

struct InCapture {
    CUdeviceptr pointer;
    CUcontext context;
    uint64_t number;
    InCapture* next;
};

constexpr uint32_t kMostEvents = 64;
constexpr uint64_t kOfThread = uint64_t{1} << 63;
// For what is queued: a stream may stand for as long as a higher class has work, or wait for this very thread.
constexpr uint64_t kQueuePatienceNs = 10000000000;

// Guarded by the residence's lock.
MemoryTable<DeferredFree*> by_pointer;  // null: freed during a capture
MemoryTable<Order*> open_orders;        // by key
Order *first_order = nullptr, *turn = nullptr;
InCapture* in_captures = nullptr;
uint64_t captured = 0;  // frees during captures, ever
struct Spare {
    CUevent event;
    CUcontext context;
} spares[kMostEvents];
uint32_t spare_count = 0;
std::atomic<uint64_t> waiting{0};  // of both kinds

void forget_in_child() {
    by_pointer.abandon();
    open_orders.abandon();
    first_order = turn = nullptr;
    in_captures = nullptr;
    spare_count = 0;
    waiting.store(0);
}
LISTEN(AtFork, ForkStep::deferred_free, forget_in_child)

CUresult take_event(CUcontext context, CUevent* event) {
    for (uint32_t i = 0; i < spare_count; ++i) {
        if (spares[i].context != context) continue;
        *event = spares[i].event;
        spares[i] = spares[--spare_count];
        return CUDA_SUCCESS;
    }
    InContext there(context);
    if (!there.is_there()) return CUDA_ERROR_INVALID_CONTEXT;
    CUresult result = driver.cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS) *event = nullptr;
    return result;
}

void give_event(CUevent event, CUcontext context) {
    if (!event) return;
    if (spare_count < kMostEvents)
        spares[spare_count++] = {event, context};
    else
        driver.cuEventDestroy_v2(event);
}

// Where a free stands: a stream has a handle of its own, the legacy stream is its context's, and a per-thread one its
// thread's, of which only the address of something that each thread has is known.
struct Where {
    CUstream stream;
    CUcontext context;
    uint64_t key;
    bool can_be_told;  // from every other stream there will be

    Where(CUstream given, bool per_thread_default) {
        thread_local char mine;
        bool is_handle = reinterpret_cast<uintptr_t>(given) > 2;
        bool per_thread = given == CU_STREAM_PER_THREAD || (!given && per_thread_default);
        stream = is_handle ? given : per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
        context = is_handle ? owner_of(given) : current_context();
        key = is_handle    ? reinterpret_cast<uint64_t>(given)
              : per_thread ? reinterpret_cast<uint64_t>(&mine) | kOfThread
                           : reinterpret_cast<uint64_t>(context) + 1;
        context = owner_of(context);
        can_be_told = !per_thread && context;
    }
};

Order* order_of(uint64_t key, CUcontext context) {
    Order** there = open_orders.find(key);
    if (there && (*there)->context == context) return *there;
    auto* order = new (std::nothrow) Order;
    if (!order) return nullptr;
    order->key = key;
    order->context = context;
    if (there) (*there)->is_open = false;
    if (!open_orders.enter(key, order)) {
        delete order;
        return nullptr;
    }
    order->next = first_order;
    if (first_order) first_order->previous = order;
    first_order = order;
    return order;
}

void close(Order& order) {
    Order* gone = nullptr;
    if (order.is_open) open_orders.take(order.key, &gone);
    order.is_open = false;
}

void drop_if_empty(Order* order) {
    if (order->oldest) return;
    close(*order);
    if (turn == order) turn = order->next;
    (order->previous ? order->previous->next : first_order) = order->next;
    if (order->next) order->next->previous = order->previous;
    order->latest.discard();
    delete order;
}

bool append(Order* order, CUdeviceptr pointer, uint64_t bytes, CUevent reached) {
    auto* one = new (std::nothrow) DeferredFree;
    if (!one || !by_pointer.enter(pointer, one)) {
        delete one;
        return false;
    }
    DeferredFree** alike = order->latest.find(bytes);
    *one = {pointer, bytes, reached, order, order->newest, nullptr, alike ? *alike : nullptr, nullptr};
    if (alike) (*alike)->newer_alike = one;
    (order->newest ? order->newest->newer : order->oldest) = one;
    order->newest = one;
    order->latest.enter(bytes, one);
    waiting.fetch_add(1);
    return true;
}

void unlink_alike(const DeferredFree& one) {
    if (one.older_alike) one.older_alike->newer_alike = one.newer_alike;
    if (one.newer_alike) {
        one.newer_alike->older_alike = one.older_alike;
        return;
    }
    DeferredFree *gone = nullptr, **there = one.order->latest.find(one.bytes);
    if (!there || *there != &one) return;
    if (one.older_alike)
        *there = one.older_alike;
    else
        one.order->latest.take(one.bytes, &gone);
}

// Its order stays, empty or not.
void remove(DeferredFree* one) {
    Order* order = one->order;
    unlink_alike(*one);
    (one->older ? one->older->newer : order->oldest) = one->newer;
    (one->newer ? one->newer->older : order->newest) = one->older;
    DeferredFree* gone = nullptr;
    by_pointer.take(one->pointer, &gone);
    give_event(one->reached, order->context);
    delete one;
    waiting.fetch_sub(1);
}

void give_back(CUdeviceptr pointer) {
    Giving giving(pointer);
    giving.result(give_back_movable(pointer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

bool free_ended(Order* order) {
    bool any = false;
    while (DeferredFree* one = order->oldest) {
        if (driver.cuEventQuery(one->reached) != CUDA_SUCCESS) break;
        CUdeviceptr pointer = one->pointer;
        remove(one);
        give_back(pointer);
        any = true;
    }
    drop_if_empty(order);
    return any;
}

// One event after another in a context: they end in this order too.
bool follow_context(const InCapture& one) {
    static bool is_possible = true;  // not before CUDA 12.5
    CUevent reached = nullptr;
    if (!is_possible || take_event(one.context, &reached) != CUDA_SUCCESS) return false;
    Order* order = order_of(reinterpret_cast<uint64_t>(one.context) + 3, one.context);
    CUresult result = order ? driver.cuCtxRecordEvent(one.context, reached) : CUDA_ERROR_OUT_OF_MEMORY;
    is_possible &= result != CUDA_ERROR_NOT_SUPPORTED;
    bool follows = result == CUDA_SUCCESS && append(order, one.pointer, 0, reached);
    if (!follows) give_event(reached, one.context);
    if (order) drop_if_empty(order);
    return follows;
}

// No capture opens meanwhile: such an event would end it.
void follow_captured() {
    Membership* membership = in_captures ? Membership::current_if_joined() : nullptr;
    if (!membership || !membership->try_lock()) return;
    for (InCapture** at = &in_captures; !captures.load() && *at;) {
        InCapture* one = *at;
        if (!follow_context(*one)) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        delete one;
        waiting.fetch_sub(1);
    }
    membership->unlock();
}

template <class Goes>
void remove_captured(Goes&& goes) {
    for (InCapture** at = &in_captures; *at;) {
        InCapture* one = *at;
        if (!goes(*one)) {
            at = &one->next;
            continue;
        }
        DeferredFree* gone = nullptr;
        by_pointer.take(one->pointer, &gone);
        *at = one->next;
        delete one;
        waiting.fetch_sub(1);
    }
}

void forget_context(CUcontext context) {
    ResidenceLocked locked;
    for (Order *order = first_order, *next = nullptr; order; order = next) {
        next = order->next;
        for (DeferredFree *one = order->oldest, *newer = nullptr; one; one = newer) {
            newer = one->newer;
            MovableRange range{};
            CUdeviceptr pointer = one->pointer;
            bool is_another = movable_range(pointer, &range) && range.context != context;
            if (order->context != context && is_another) continue;
            if (order->context == context) one->reached = nullptr;  // it has gone with its context
            remove(one);
            // Nothing is queued before it any more.
            if (is_another) give_back(pointer);
        }
        drop_if_empty(order);
    }
    remove_captured([&](const InCapture& one) { return one.context == context; });
    for (uint32_t i = spare_count; i-- > 0;)
        if (spares[i].context == context) spares[i] = spares[--spare_count];
}
LISTEN(AtContextEnd, ContextEndStep::deferred_free, forget_context)

// Null: a capture is open, which such an event would end, or the driver has none (before CUDA 12.5).
CUevent end_of_queued_work() {
    Membership* membership = Membership::current_if_joined();
    CUevent end = nullptr;
    if (!membership) return nullptr;
    MembershipLocked locked(*membership);
    if (captures.load() || driver.cuEventCreate(&end, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return nullptr;
    if (driver.cuCtxRecordEvent(current_context(), end) == CUDA_SUCCESS) return end;
    driver.cuEventDestroy_v2(end);
    return nullptr;
}

}  // namespace

bool may_free_deferred() { return waiting.load(std::memory_order_relaxed) != 0 && !capture_is_open(); }

bool pool_is_movable(CUstream stream, bool per_thread_default) {
    // It may be the first thing that the process does: whether its memory moves is settled when it becomes a tenant.
    if (!Membership::current() || !Still::memory_moves.load(std::memory_order_relaxed)) return false;
    if (is_captured(stream, per_thread_default)) return false;
    CUdevice device = 0;
    CUmemoryPool now = nullptr, its_own = nullptr;
    return driver.cuCtxGetDevice(&device) == CUDA_SUCCESS && driver.cuDeviceGetMemPool(&now, device) == CUDA_SUCCESS &&
           driver.cuDeviceGetDefaultMemPool(&its_own, device) == CUDA_SUCCESS && now == its_own;
}

bool is_deferred(CUdeviceptr pointer) {
    ResidenceLocked locked;
    return by_pointer.find(pointer) != nullptr;
}

bool defer_free(CUdeviceptr pointer) {
    ResidenceLocked locked;
    MovableRange range{};
    if (!movable_range(pointer, &range)) return false;
    auto* one = new (std::nothrow) InCapture{pointer, range.context, ++captured, in_captures};
    if (!one || !by_pointer.enter(pointer, nullptr)) {
        delete one;
        return false;
    }
    in_captures = one;
    waiting.fetch_add(1);
    return true;
}

CUresult defer_free_in(CUdeviceptr pointer, CUstream stream, bool per_thread_default) {
    ResidenceLocked locked;
    MovableRange range{};
    Where where(stream, per_thread_default);
    if (!movable_range(pointer, &range) || range.base != pointer || is_deferred(pointer))
        return CUDA_ERROR_INVALID_VALUE;
    if (!where.context) return CUDA_ERROR_INVALID_CONTEXT;
    CUevent reached = nullptr;
    CUresult result = take_event(where.context, &reached);
    if (result != CUDA_SUCCESS) return result;
    Order* order = order_of(where.key, where.context);
    result = order ? driver.cuEventRecord(reached, where.stream) : CUDA_ERROR_OUT_OF_MEMORY;
    // Memory of another context, or GPU, than the stream's is nothing to allocate in that stream's order again.
    uint64_t usable_bytes = range.context == where.context ? range.bytes : 0;
    if (result == CUDA_SUCCESS && !append(order, pointer, usable_bytes, reached)) result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) give_event(reached, where.context);
    if (order && !capture_is_open()) {
        Relaxed relaxed;
        free_ended(order);
    } else if (order) {
        drop_if_empty(order);
    }
    return result;
}

CUdeviceptr take_again(uint64_t bytes, CUstream stream, bool per_thread_default) {
    if (!bytes || waiting.load(std::memory_order_relaxed) == 0) return 0;
    Where where(stream, per_thread_default);
    if (!where.can_be_told) return 0;
    ResidenceLocked locked;
    Order** order = open_orders.find(where.key);
    DeferredFree** there = order && (*order)->context == where.context ? (*order)->latest.find(bytes) : nullptr;
    if (!there) return 0;
    CUdeviceptr pointer = (*there)->pointer;
    Order* its = *order;
    remove(*there);
    drop_if_empty(its);
    return pointer;
}

bool wait_for_queued_frees(CUstream stream) {
    InContextOf there(stream);
    Relaxed relaxed;
    CUevent end = end_of_queued_work();
    if (!end) return false;
    CUresult result = CUDA_ERROR_NOT_READY;
    for (uint64_t began = wire::now_ns(); !capture_is_open() && wire::now_ns() - began < kQueuePatienceNs;) {
        if ((result = driver.cuEventQuery(end)) != CUDA_ERROR_NOT_READY) break;
        wire::nap(100000);
    }
    driver.cuEventDestroy_v2(end);
    return result == CUDA_SUCCESS;
}

void end_order_of(CUstream stream) {
    if (waiting.load(std::memory_order_relaxed) == 0) return;
    ResidenceLocked locked;
    if (Order** order = open_orders.find(reinterpret_cast<uint64_t>(stream))) close(**order);
}

bool free_deferred() {
    if (!may_free_deferred()) return false;
    Relaxed relaxed;
    ResidenceLocked locked;
    follow_captured();
    bool any = false;
    for (Order *order = first_order, *next = nullptr; order; order = next) {
        next = order->next;
        any |= free_ended(order);
    }
    return any;
}

void free_some_deferred() {
    if (!may_free_deferred()) return;
    Relaxed relaxed;
    ResidenceLocked locked;
    follow_captured();
    if (!turn) turn = first_order;
    if (!turn) return;
    Order* order = turn;
    turn = order->next;
    free_ended(order);
}

uint64_t deferred_so_far() {
    ResidenceLocked locked;
    return captured;
}

void free_deferred_until(uint64_t so_far, CUcontext context) {
    if (waiting.load(std::memory_order_relaxed) == 0) return;
    ResidenceLocked locked;
    remove_captured([&](const InCapture& one) {
        if (one.number > so_far || one.context != context) return false;
        give_back(one.pointer);
        return true;
    });
}

}  // namespace tenant
