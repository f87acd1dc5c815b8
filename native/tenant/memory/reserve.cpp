#include "tenant/memory/reserve.h"

#include <algorithm>

#include "tenant/captures.h"
#include "tenant/membership.h"
#include "tenant/memory/deferred_free.h"
#include "tenant/memory/pools.h"
#include "tenant/memory/quota.h"

namespace tenant {

namespace {

bool take_within_limit(const Place& place, uint64_t bytes) {
    wire::Segment& segment = place.membership->segment();
    uint64_t total = place.total(), users_limit = users_memory_limit(segment, total);
    auto fits = [&] { return take_memory(segment, place.slot(), place.gpu, bytes, place.limit(), users_limit, total); };
    tell_of_growth(segment, bytes);
    if (fits()) return true;
    if (bytes <= place.limit()) {
        if (free_deferred() && fits()) return true;
        settle_pools(*place.membership);
        if (fits()) return true;
        trim_pools(place);
        if (fits()) return true;
    }
    place.slot().memory[place.gpu].refused.fetch_add(1, std::memory_order_relaxed);
    return false;
}

// What stocks hold unused is the tenant's own to use before others make space. True: worth another look.
bool stocks_shrink(const Place& place, bool* trimmed) {
    if (settle_pools(*place.membership) == Change::shrank) return true;
    if (*trimmed) return false;
    trim_pools(place);
    return *trimmed = true;
}

// Whether the tenant may take that much more.
bool take(const Place& place, uint64_t bytes) {
    bool trimmed = false;
    for (Need need(place, bytes); take_within_limit(place, bytes);) {
        if (bytes == 0 || is_within_capacity(place)) return true;
        give(place, bytes);
        if (free_deferred() || stocks_shrink(place, &trimmed) || need.wait(false)) continue;
        if (place.is_limited()) return false;
        count(place, bytes);
        // What other slots count may be garbage: where no limit is set, the driver has the last word. But with the
        // headroom of the higher classes this tenant would be evicted, and not be restored while they are there.
        if (!takes_headroom(place)) return true;
        give(place, bytes);
        return false;
    }
    return false;
}

}  // namespace

Reservation::Reservation(uint64_t bytes, const Place& place) : place_(place), bytes_(bytes) {
    if (place_) refused_ = !charge(in_pages(bytes));
}

Reservation::~Reservation() {
    if (charged_) give(place_, charged_);
}

bool Reservation::charge(uint64_t bytes) {
    bool taken = take(place_, bytes);
    if (taken) charged_ = bytes;
    return taken;
}

bool Reservation::more_space(Need& need) { return free_deferred() || need.wait(true); }

void Reservation::keep(uint64_t key, uint64_t bytes, MemoryKind kind) {
    if (!place_) return;
    correct(place_, charged_, enter_allocation(place_, key, bytes, kind));
    charged_ = 0;
}

PoolReservation::PoolReservation(uint64_t bytes, CUmemoryPool pool, CUstream stream, bool per_thread_default)
    : pool_(pool), stream_(!stream && per_thread_default ? CU_STREAM_PER_THREAD : stream) {
    place_ = pool ? place_of_pool(pool) : place_of_current_context();
    bytes_ = bytes;
    if (!place_) return;
    know_pools_of(place_);
    // A capture takes nothing: the graph will, when it is launched.
    is_captured_ = is_captured(stream_, per_thread_default);
    if (!place_.is_limited() || bytes == 0 || is_captured_) return;
    if (charge(in_pages(bytes, kPoolStep))) return;
    from_stock_ = fits_in_pool(pool_, place_, bytes_);
    refused_ = !from_stock_;
}

CUresult PoolReservation::result(CUresult result, CUdeviceptr pointer) {
    if (!place_ || result != CUDA_SUCCESS || is_captured_) return result;
    // In an unlimited job the watcher counts the pools.
    bool has_grown = (charged_ || from_stock_) && settle_pools(*place_.membership) == Change::grew;
    if (has_grown && from_stock_) {
        // It held enough, but not in one piece, and has grown over the limit.
        driver.cuMemFreeAsync(pointer, stream_);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    note_pooled(pool_, place_, pointer, bytes_);
    return result;
}

GraphReservation::GraphReservation(CUgraph graph) {
    Place here = place_of_current_context();
    if (!here || !here.is_limited()) return;
    CUdevice device = here.device;
    bytes_ = in_pages(graph_memory_of(graph, &device), kPoolStep);
    if (bytes_ == 0) return;
    place_ = place_of_device(device);
    if (!place_) return;
    know_pools_of(place_);
    refused_ = !charge(bytes_ - std::min(bytes_, graph_memory_counted(place_)));
}

void GraphReservation::keep_for(CUgraphExec exec) {
    if (place_) promise_graph_memory(exec, place_, bytes_);
}

}  // namespace tenant
