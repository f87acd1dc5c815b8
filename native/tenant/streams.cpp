#include "tenant/streams.h"

#include <initializer_list>
#include <new>

namespace tenant {

StreamState* StreamTable::enter(StreamKey key, CUstream handle, CUcontext context, int gpu) {
    if (used_count_ >= kMostStreams) return nullptr;
    StreamState* state = spare_count_ ? spare_[--spare_count_] : new (std::nothrow) StreamState;
    if (!state) return nullptr;
    if (!state->number) state->number = ++made_;
    state->handle = handle;
    state->context = context;
    state->gpu = gpu;
    state->gate = 0;
    state->progress_word = 0;
    // In this order: a launch that still holds the state of the stream before it must not leave one more entered than
    // issued.
    state->issued.store(0);
    state->entered.store(0);
    state->since_gate_us.store(0, std::memory_order_relaxed);
    state->done.store(0, std::memory_order_relaxed);
    state->among_copies.store(false, std::memory_order_relaxed);
    state->bus_issued.store(0, std::memory_order_relaxed);
    state->bus_mark.store(0, std::memory_order_relaxed);
    state->was.store(nullptr, std::memory_order_relaxed);
    for (auto& place : state->issued_at) place.count.store(0, std::memory_order_relaxed);
    for (auto* word : {&state->launched.operations, &state->launched.sms, &state->launched.us}) word->store(0);
    state->last_work.store(nullptr, std::memory_order_relaxed);
    state->finished = 0;
    state->bus_done = 0;
    state->entered_before = 0;
    put(state, key);
    state->used_at = used_count_;
    used_[used_count_++] = state;
    return state;
}

void StreamTable::put(StreamState* state, StreamKey key) {
    // A thread that finds the key, in the old place of the state or in the new one, finds the rest.
    state->key.store(key, std::memory_order_release);
    uint32_t place = home_of(key);
    while (places_[place].load(std::memory_order_relaxed)) place = next(place);
    places_[place].store(state, std::memory_order_release);
}

uint32_t StreamTable::place_of(StreamKey key) const {
    for (uint32_t place = home_of(key); StreamState* state = places_[place].load(std::memory_order_relaxed);
         place = next(place))
        if (state->key.load(std::memory_order_relaxed) == key) return place;
    return kPlaces;
}

void StreamTable::remove(StreamKey key) {
    uint32_t place = place_of(key);
    if (place == kPlaces) return;
    StreamState* state = places_[place].load(std::memory_order_relaxed);
    take_out(place);
    used_[state->used_at] = used_[--used_count_];
    used_[state->used_at]->used_at = state->used_at;
    spare_[spare_count_++] = state;
}

void StreamTable::rename(StreamState& state, StreamKey key) {
    take_out(place_of(state.key.load(std::memory_order_relaxed)));
    put(&state, key);
}

void StreamTable::take_out(uint32_t place) {
    StreamState* state = places_[place].load(std::memory_order_relaxed);
    state->key.store(kNoStream, std::memory_order_relaxed);
    // The entries behind it move up where that brings them nearer to their home, so that no look-up ever passes an
    // empty place: streams may come and go for ever.
    uint32_t hole = place;
    for (uint32_t i = next(hole); StreamState* behind = places_[i].load(std::memory_order_relaxed); i = next(i)) {
        uint32_t home = home_of(behind->key.load(std::memory_order_relaxed));
        if ((i - home) % kPlaces < (i - hole) % kPlaces) continue;
        places_[hole].store(behind, std::memory_order_release);
        hole = i;
    }
    places_[hole].store(nullptr, std::memory_order_release);
    generation_.store(next_generation(), std::memory_order_release);
}

}  // namespace tenant
