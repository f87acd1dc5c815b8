#include "tenant/memory/residence.h"

#include <cstdlib>
#include <cstring>

#include "tenant/context_end.h"
#include "tenant/fork.h"
#include "tenant/identity_file.h"
#include "tenant/membership.h"
#include "tenant/membership_events.h"
#include "tenant/memory/ipc_export.h"
#include "tenant/settings.h"
#include "wire/border.h"
#include "wire/clock.h"
#include "wire/sleep.h"

namespace tenant {

Residence residence{Lock(Rank::residence, Lock::Kind::recursive), {},      {},
                    {residence.chunks, residence.pool},           nullptr, false};

namespace {

void forget_in_child() {
    residence.lock.renew();
    residence.chunks.abandon();
    residence.pool.forget_in_child();
    residence.eviction.forget_in_child();
    Still::memory_moves.store(false);
}
LISTEN(AtFork, ForkStep::residence, forget_in_child)

void remove(Chunk* chunk) {
    residence.chunks.remove(chunk);
    discard_chunk(chunk);
}

// Of whole ones and slabs; null: none begins there.
Chunk* allocated_at(CUdeviceptr pointer, MovableRange* range) {
    Chunk* chunk = residence.chunks.containing(pointer);
    if (!chunk || chunk->origin == Chunk::Origin::mapping) return nullptr;
    if (!chunk->slab)
        *range = {chunk->address, chunk->asked, nullptr, false};
    else if (!chunk->slab->piece_around(pointer, &range->base, &range->bytes))
        return nullptr;
    range->context = chunk->context;
    range->exportable = chunk->properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return chunk;
}

// Nobody has said whether memory shall move: the class decides, and nothing may work worse for it.
bool is_by_default() {
    const char* text = setting("COTENANT_OVERSUBSCRIBE");
    return !text || !*text;
}

bool memory_shall_move() {
    if (is_by_default()) return class_from_environment() == wire::opportunistic;
    const char* text = setting("COTENANT_OVERSUBSCRIBE");
    return strcmp(text, "0") != 0 && strcmp(text, "no") != 0 && strcmp(text, "false") != 0;
}

// Before the first call that could use memory: of an opportunistic tenant, or as COTENANT_OVERSUBSCRIBE says.
void begin(wire::Segment& segment, wire::Slot& slot) {
    if (!memory_shall_move()) return;
    residence.only_exportable = is_by_default();
    residence.slot = &slot;
    residence.pool.use(&segment, &slot);
    slot.residence.since_ns.store(wire::now_ns());
    slot.residence.where.store(wire::resident);
    Still::memory_moves.store(true);
}
LISTEN(AtJoin, MembershipStep::residence, begin)

void forget_context(CUcontext context) {
    if (!Still::memory_moves.load(std::memory_order_relaxed)) return;
    ResidenceLocked locked;
    residence.eviction.forget_context(context);
    residence.pool.forget_context(context);
    for (uint32_t i = residence.chunks.count(); i-- > 0;) {
        Chunk* chunk = &residence.chunks[i];
        if (chunk->context != context) continue;
        // What the program has mapped outlives contexts; but there is none to copy it in any more.
        if (chunk->origin == Chunk::Origin::mapping) {
            set_pinned(*chunk, true);
            chunk->context = nullptr;
        } else {
            remove(chunk);
        }
    }
}
LISTEN(AtContextEnd, ContextEndStep::residence, forget_context)

}  // namespace

void discard_chunk(Chunk* chunk) {
    end_exports_of(*chunk);
    if (chunk->mapped) driver.cuMemUnmap(chunk->address, chunk->bytes);
    if (chunk->handle) driver.cuMemRelease(chunk->handle);
    if (chunk->address) driver.cuMemAddressFree(chunk->address, chunk->bytes);
    show_movable(*chunk, false);
    delete chunk->slab;
    delete chunk;
}

CUresult enter_chunk(Chunk* chunk) {
    if (residence.chunks.insert(chunk)) {
        show_movable(*chunk, !chunk->pinned);
        return CUDA_SUCCESS;
    }
    discard_chunk(chunk);
    return CUDA_ERROR_NOT_SUPPORTED;
}

bool give_back_movable(CUdeviceptr pointer) {
    ResidenceLocked locked;
    MovableRange range{};
    Chunk* chunk = allocated_at(pointer, &range);
    if (!chunk || range.base != pointer) return false;
    end_export(pointer);
    if (chunk->slab) chunk->slab->give(pointer);
    if (chunk->slab && !chunk->slab->is_empty()) return true;
    remove(chunk);
    return true;
}

bool is_movable(CUdeviceptr pointer) {
    MovableRange range{};
    return pointer && movable_range(pointer, &range) && range.base == pointer;
}

bool movable_range(CUdeviceptr pointer, MovableRange* out) {
    if (!Still::memory_moves.load(std::memory_order_relaxed)) return false;
    ResidenceLocked locked;
    Chunk* chunk = allocated_at(pointer, out);
    return chunk && pointer - out->base < out->bytes;
}

void set_pinned(Chunk& chunk, bool pinned) {
    chunk.pinned = pinned;
    show_movable(chunk, !pinned);
}

void show_movable(Chunk& chunk, bool shown) {
    if (chunk.shown == shown) return;
    chunk.shown = shown;
    // Once the slot has been left, another process may have it.
    if (!Membership::current_if_joined()) return;
    wire::Count& movable = residence.slot->memory[chunk.gpu].movable_bytes;
    if (shown)
        movable.fetch_add(chunk.bytes);
    else
        movable.fetch_sub(chunk.bytes);
}

MovableBytes movable_bytes() {
    MovableBytes bytes;
    ResidenceLocked locked;
    for (uint32_t i = 0; i < residence.chunks.count(); ++i) {
        const Chunk& chunk = residence.chunks[i];
        if (chunk.pinned) continue;
        bytes.all[chunk.gpu] += chunk.bytes;
        if (!chunk.handle) bytes.absent[chunk.gpu] += chunk.bytes;
    }
    return bytes;
}

void wake_mover() {
    Membership* membership = Membership::current_if_joined();
    if (!membership) return;
    if (wire::is_shared(membership->segment())) wire::ring_bell(membership->segment());
    wire::Flag& wake = membership->slot().residence.wake;
    wake.fetch_add(1);
    wire::wake_shared(wake);
}

}  // namespace tenant
