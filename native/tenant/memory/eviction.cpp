#include "tenant/memory/eviction.h"

#include <algorithm>

namespace tenant {

Eviction& Eviction::operator=(const Eviction& other) {
    // Only to begin anew: what was planned belongs to another process.
    pieces_.abandon();
    lanes_.abandon();
    copied_ = 0;
    is_evicted_ = other.is_evicted_;
    may_be_under_way_ = false;
    refusal_ = other.refusal_;
    saved_bytes_ = dropped_bytes_ = 0;
    return *this;
}

bool Eviction::add_pieces(const Chunk& chunk, CUdeviceptr from, CUdeviceptr to) {
    while (from < to) {
        uint64_t bytes = std::min<uint64_t>(to - from, HostPool::piece(saved_bytes_));
        if (!pieces_.add({from, bytes, saved_bytes_, chunk.context})) return refuse(wire::host_memory);
        saved_bytes_ += bytes;
        from += bytes;
    }
    return true;
}

bool Eviction::plan(const UnusedRanges& unused) {
    pieces_.clear();
    copied_ = 0;
    saved_bytes_ = dropped_bytes_ = 0;
    uint32_t next = 0;
    for (uint32_t i = 0; i < chunks_.count(); ++i) {
        const Chunk& chunk = chunks_[i];
        if (chunk.pinned) continue;
        CUdeviceptr at = chunk.address, end = chunk.address + chunk.bytes;
        while (next < unused.count && unused.ranges[next].address + unused.ranges[next].bytes <= at) ++next;
        for (uint32_t n = next; n < unused.count && unused.ranges[n].address < end; ++n) {
            const UnusedRanges::Range& range = unused.ranges[n];
            CUdeviceptr from = std::max(range.address, at), to = std::min(range.address + range.bytes, end);
            if (!add_pieces(chunk, at, from)) return false;
            dropped_bytes_ += to - from;
            at = to;
        }
        if (!add_pieces(chunk, at, end)) return false;
    }
    return true;
}

CUstream Eviction::lane_in(CUcontext context) {
    for (const Lane& lane : lanes_)
        if (lane.context == context) return lane.stream;
    CUstream stream = nullptr;
    if (!lanes_.reserve(lanes_.count() + 1) || driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        return nullptr;
    lanes_.add({context, stream});
    return stream;
}

void Eviction::forget_context(CUcontext context) {
    for (size_t i = lanes_.count(); i-- > 0;)
        if (lanes_[i].context == context) lanes_.remove(i);
}

bool Eviction::copy(Way way, const Piece& piece, CUstream lane) {
    char* there = pool_.at(piece.place);
    return (way == Way::to_host ? driver.cuMemcpyDtoHAsync_v2(there, piece.address, piece.bytes, lane)
                                : driver.cuMemcpyHtoDAsync_v2(piece.address, there, piece.bytes, lane)) == CUDA_SUCCESS;
}

bool Eviction::copy(Way way, uint32_t from, uint32_t to) {
    CUcontext current = nullptr;
    bool good = true;
    for (uint32_t i = from; good && i < to; ++i) {
        const Piece& piece = pieces_[i];
        // While one is on its way, the driver pins the next one's place.
        bool has_place = way == Way::to_gpu || pool_.have(piece.place + piece.bytes) || refuse(wire::host_memory);
        good = has_place && (piece.context == current || driver.cuCtxSetCurrent(piece.context) == CUDA_SUCCESS);
        current = piece.context;
        CUstream lane = good ? lane_in(current) : nullptr;
        good = lane && copy(way, piece, lane);
    }
    // Also after a failure: nothing may be on its way when what it goes to or comes from changes hands.
    wait_for_lanes();
    return good && !may_be_under_way_;
}

void Eviction::wait_for_lanes() {
    may_be_under_way_ = false;
    for (const Lane& lane : lanes_)
        if (driver.cuCtxSetCurrent(lane.context) != CUDA_SUCCESS ||
            driver.cuStreamSynchronize(lane.stream) != CUDA_SUCCESS)
            may_be_under_way_ = true;
}

namespace {

// What the driver does not know is gone, whatever it said when it was asked to give it up.
bool is_gone(CUresult result) { return result == CUDA_SUCCESS || result == CUDA_ERROR_INVALID_VALUE; }

bool unmap(Chunk& chunk) {
    if (chunk.mapped && is_gone(driver.cuMemUnmap(chunk.address, chunk.bytes))) chunk.mapped = false;
    return !chunk.mapped;
}

void release(Chunk& chunk) {
    if (chunk.handle && is_gone(driver.cuMemRelease(chunk.handle))) chunk.handle = 0;
}

bool map(Chunk& chunk) {
    if (chunk.mapped) return true;
    chunk.mapped = driver.cuMemMap(chunk.address, chunk.bytes, 0, chunk.handle, 0) == CUDA_SUCCESS;
    // A call that failed may have taken effect all the same: then the next would find the addresses taken.
    if (!chunk.mapped) driver.cuMemUnmap(chunk.address, chunk.bytes);
    return chunk.mapped;
}

}  // namespace

void Eviction::give_up(Chunk& chunk) {
    // Asked again, the driver does not know what it has given up in spite of its answer.
    if (chunk.pinned || (!unmap(chunk) && !unmap(chunk))) return;
    release(chunk);
    if (chunk.handle) release(chunk);
}

bool Eviction::restore_chunk(Chunk& chunk) {
    if (chunk.pinned) return true;
    // What could not be released is not always there.
    if (chunk.handle && !map(chunk)) release(chunk);
    if (!chunk.handle && driver.cuMemCreate(&chunk.handle, chunk.bytes, &chunk.properties, 0) != CUDA_SUCCESS) {
        chunk.handle = 0;
        return false;
    }
    return map(chunk) &&
           driver.cuMemSetAccess(chunk.address, chunk.bytes, chunk.access, chunk.access_count) == CUDA_SUCCESS;
}

// How many pieces from there on are its own; pieces are in the order of the chunks.
uint32_t Eviction::pieces_in(const Chunk& chunk, uint32_t from) const {
    uint32_t end = from;
    while (end < pieces_.count() && chunk.contains(pieces_[end].address)) ++end;
    return end - from;
}

uint32_t Eviction::first_to_save() const {
    uint32_t first = 0;
    while (first < chunks_.count() &&
           (copied_ == pieces_.count() || !chunks_[first].contains(pieces_[copied_].address)))
        ++first;
    return first;
}

void Eviction::save_what_is_unused() {
    uint32_t piece = 0;
    for (uint32_t i = 0; i < chunks_.count(); ++i) {
        uint32_t own = pieces_in(chunks_[i], piece);
        chunks_[i].saved = !own && !chunks_[i].pinned;
        piece += own;
    }
}

// The chunks from `next` on, until it is enough for once.
bool Eviction::save_batch(uint32_t* next) {
    uint32_t first = *next, end = copied_;
    for (uint64_t bytes = 0; *next < chunks_.count() && bytes < batch_; ++*next)
        for (uint32_t own = pieces_in(chunks_[*next], end); own; --own) bytes += pieces_[end++].bytes;
    if (end > copied_ && !copy(Way::to_host, copied_, end)) return false;
    copied_ = end;
    for (uint32_t i = first; i < *next; ++i) chunks_[i].saved = !chunks_[i].pinned;
    return true;
}

bool Eviction::give_up_saved() {
    bool good = true;
    for (uint32_t i = 0; i < chunks_.count(); ++i) {
        if (!chunks_[i].saved || !chunks_[i].handle) continue;
        is_evicted_ = true;
        give_up(chunks_[i]);
        good &= !chunks_[i].handle;
    }
    return good;
}

bool Eviction::evict(const UnusedRanges& unused, Others& others) {
    bool was_short = !is_evicted_ && refusal_ == wire::host_memory;
    refusal_ = wire::none_refused;
    if (may_be_under_way_) wait_for_lanes();
    if (may_be_under_way_) return refuse(wire::driver_failed);
    if (!is_evicted_ && !plan(unused)) return false;
    wire::Refusal why = wire::none_refused;
    if (pieces_.count() && driver.cuCtxSetCurrent(pieces_[0].context) != CUDA_SUCCESS)
        return refuse(wire::driver_failed);
    if (!pool_.claim(saved_bytes_, &why)) return refuse(why);
    // Nothing is given up before the first of it is had; nor before all of it is, where that was too much last time.
    uint64_t first = was_short ? saved_bytes_ : std::min(saved_bytes_, HostPool::kBlock);
    bool evicted = pool_.have(first) ? evict_batches(others) : refuse(wire::host_memory);
    pool_.settle();
    return evicted;
}

bool Eviction::evict_batches(Others& others) {
    if (!is_evicted_) save_what_is_unused();
    for (uint32_t next = first_to_save();;) {
        bool given = give_up_saved();
        others.have_more_space();
        if (!given) return refuse(wire::driver_failed);
        if (next == chunks_.count()) break;
        if (!save_batch(&next)) return refuse(refusal_ ? refusal_ : wire::driver_failed);
    }
    is_evicted_ = true;
    return true;
}

bool Eviction::restore_all(Others& others) {
    // A tenant that is partly evicted keeps the rest when it stops restoring: it makes space only by a whole restore
    // and a new eviction.
    auto shall_turn = [&] { return copied_ == pieces_.count() && others.need_the_space(); };
    for (uint32_t i = 0; i < chunks_.count(); ++i)
        if (shall_turn() || !restore_chunk(chunks_[i])) return false;
    for (uint32_t from = 0, to = 0; from < copied_; from = to) {
        for (uint64_t bytes = 0; to < copied_ && bytes < batch_; ++to) bytes += pieces_[to].bytes;
        if (shall_turn() || !copy(Way::to_gpu, from, to)) return false;
    }
    return true;
}

bool Eviction::restore(Others& others) {
    if (!is_evicted_) return true;
    if (restore_all(others)) {
        is_evicted_ = false;
        return true;
    }
    // A copy that may still come must find the memory that it goes to; the next try copies again.
    for (uint32_t i = 0; !may_be_under_way_ && i < chunks_.count(); ++i)
        if (chunks_[i].saved) give_up(chunks_[i]);
    return false;
}

}  // namespace tenant
