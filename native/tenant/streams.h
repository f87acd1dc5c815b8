// What the tenant remembers of each stream it has seen. Looked up on every launch without a lock; entered and removed
// under one.
//
// A stream's key is its handle; the two default streams have none of their own, so the legacy one is known by its
// context, and a per-thread one by its context and thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "tenant/driver_calls.h"

namespace tenant {

struct StreamKey {
    uintptr_t handle;  // the stream's, or the context's for a default stream
    uintptr_t which;   // 0 a stream, 1 the legacy default stream, else the thread of a per-thread one

    bool operator==(const StreamKey& other) const { return handle == other.handle && which == other.which; }
};

struct StreamState {
    StreamKey key{};
    CUstream handle = nullptr;  // what the driver is called with
    CUcontext context = nullptr;
    int gpu = -1;                         // its number in the segment
    CUevent last_work = nullptr;          // per-thread streams only: others cannot ask for them by handle
    std::atomic<float> since_gate_us{0};  // work queued since the last gate
    uint32_t number = 0;                  // of its progress word; it keeps both when it serves another stream
    std::atomic<double> queued_us{0};     // work ever put into the stream
    std::atomic<uint32_t> stuck_at{~0u};  // the mark at which it stood still though nobody held it
    std::atomic<uint64_t> issued{0};      // operations put into the stream
    uint64_t finished = 0;                // `issued` when the watcher last saw the stream empty
};

class StreamTable {
 public:
    static constexpr uint32_t kPlaces = 4096;  // more streams than that are served, but not watched

    StreamState* find(const StreamKey& key) const {
        for (uint32_t i = hash(key), tries = 0; tries < kPlaces; ++i, ++tries) {
            StreamState* state = places_[i % kPlaces].load(std::memory_order_acquire);
            if (!state) return nullptr;
            if (state != &removed_ && state->key == key) return state;
        }
        return nullptr;
    }

    // Changes when a stream is removed: what a thread remembers of an earlier one may not be true any more.
    uint32_t generation() const { return generation_.load(std::memory_order_acquire); }

    // The caller holds the tenant's lock for the rest.
    StreamState* enter(const StreamKey& key, CUstream handle, CUcontext context, int gpu);
    template <class Matches>
    int remove_if(Matches&& matches) {
        int removed = 0;
        for (uint32_t i = 0; i < kPlaces; ++i) {
            StreamState* state = places_[i].load(std::memory_order_relaxed);
            if (!state || state == &removed_ || !matches(*state)) continue;
            places_[i].store(&removed_, std::memory_order_release);
            generation_.store(next_generation(), std::memory_order_release);
            recycle(state);
            ++removed;
        }
        return removed;
    }
    template <class Do>
    void for_each(Do&& act) {
        for (uint32_t i = 0; i < used_places_; ++i) act(*used_[i]);
    }

 private:
    static uint32_t hash(const StreamKey& key) {
        uint64_t mixed = (key.handle >> 4 ^ key.which * 0x9e3779b97f4a7c15u) * 0xff51afd7ed558ccdu;
        return static_cast<uint32_t>(mixed >> 40);
    }
    void recycle(StreamState* state);

    static StreamState removed_;
    // Never one that an earlier table of this process, or of the parent it was forked from, has had.
    static uint32_t next_generation() {
        static std::atomic<uint32_t> last{0};
        return last.fetch_add(1) + 1;
    }
    std::atomic<uint32_t> generation_{next_generation()};
    std::atomic<StreamState*> places_[kPlaces]{};
    // States are never freed: a launch that races with the stream's destruction may still hold one.
    StreamState* used_[kPlaces]{};
    uint32_t used_places_ = 0;
    StreamState* spare_[kPlaces]{};
    uint32_t spares_ = 0;
    uint32_t made_ = 0;  // at most kPlaces / 4 * 3
};

}  // namespace tenant
