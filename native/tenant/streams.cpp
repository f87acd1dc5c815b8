#include "tenant/streams.h"

#include <new>

namespace tenant {

StreamState StreamTable::removed_;

StreamState* StreamTable::enter(const StreamKey& key, CUstream handle, CUcontext context, int gpu) {
    // A table three quarters full is full: look-ups must meet an empty place soon.
    if (used_places_ >= kPlaces / 4 * 3) return nullptr;
    StreamState* state = spares_ ? spare_[--spares_] : new (std::nothrow) StreamState;
    if (!state) return nullptr;
    if (!state->number) state->number = ++made_;
    state->key = key;
    state->handle = handle;
    state->context = context;
    state->gpu = gpu;
    state->issued.store(0, std::memory_order_relaxed);
    state->since_gate_us.store(0, std::memory_order_relaxed);
    state->finished = 0;
    state->last_work = nullptr;
    for (uint32_t i = hash(key);; ++i) {
        StreamState* there = places_[i % kPlaces].load(std::memory_order_relaxed);
        if (there && there != &removed_) continue;
        places_[i % kPlaces].store(state, std::memory_order_release);
        used_[used_places_++] = state;
        return state;
    }
}

void StreamTable::recycle(StreamState* state) {
    for (uint32_t i = 0; i < used_places_; ++i) {
        if (used_[i] != state) continue;
        used_[i] = used_[--used_places_];
        break;
    }
    spare_[spares_++] = state;
    if (used_places_ == 0)
        for (auto& place : places_) place.store(nullptr, std::memory_order_release);
}

}  // namespace tenant
