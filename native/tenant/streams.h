// What the tenant remembers of each stream that it has seen. Every launch looks it up without a lock; entries are made
// and removed under one.
#pragma once

#include <atomic>
#include <cstdint>

#include "tenant/driver_calls.h"
#include "tenant/word.h"

namespace tenant {

// A stream's key is its handle. The two default streams have none of their own: the legacy one is known by its context,
// a per-thread one by its context and thread. One word, so that a look-up never compares halves of two keys.
//
//    63   62        52 51                       0
//   ┌───┬─────────────┬──────────────────────────┐
//   │ 1 │    which    │    the context's handle  │   which: 1 the legacy default stream, else the thread's number
//   └───┴─────────────┴──────────────────────────┘
//
// A destroyed stream whose work has not ended is known by the event behind that work, in the place of the context.
using StreamKey = uint64_t;
constexpr StreamKey kNoStream = 0;  // also of streams that are served, but not watched
constexpr StreamKey kDefaultStream = StreamKey{1} << 63;
constexpr int kContextBits = 52;
constexpr uint32_t kDestroyed = (1 << (63 - kContextBits)) - 1;  // in the place of which < this

inline StreamKey key_of_stream(CUstream stream) {
    auto key = reinterpret_cast<uintptr_t>(stream);
    return key & kDefaultStream ? kNoStream : key;
}
inline StreamKey key_of_default_stream(CUcontext context, uint32_t which) {
    auto handle = reinterpret_cast<uintptr_t>(context);
    return handle >> kContextBits ? kNoStream : kDefaultStream | StreamKey{which} << kContextBits | handle;
}
inline StreamKey key_of_destroyed_stream(CUevent end_of_work) {
    return key_of_default_stream(reinterpret_cast<CUcontext>(end_of_work), kDestroyed);
}

inline uint32_t which_default_stream(StreamKey key) {
    return key & kDefaultStream ? key >> kContextBits & kDestroyed : 0;
}
inline bool is_legacy_stream(StreamKey key) { return which_default_stream(key) == 1; }

// States are never freed, and serve one stream after another: a launch that races with its stream's destruction may
// still hold one. So every word of it is one that can be read at any time.
struct StreamState {
    std::atomic<StreamKey> key{kNoStream};  // stored after the rest, with release
    Word<CUstream> handle = nullptr;        // what the driver is called with
    Word<CUcontext> context = nullptr;
    Word<int> gpu = 0;  // its number in the segment
    // Where the GPU finds the gate (gpu_pages.h); 0: not asked for yet. And the word that it writes its progress to,
    // once that has a value (Progress::begin); 0: none.
    Published<CUdeviceptr> gate = 0, progress_word = 0;
    // Of per-thread streams, which others cannot ask for by handle, and of destroyed ones.
    std::atomic<CUevent> last_work{nullptr};
    std::atomic<float> since_gate_us{0};  // work queued since the last gate
    std::atomic<uint64_t> queued_ns{0};   // work ever put into the stream, and into those that it served before
    std::atomic<uint32_t> stuck_at{~0u};  // the mark at which it stood still though nobody held it
    std::atomic<uint64_t> entered{0};     // operations that the driver was called for
    std::atomic<uint64_t> issued{0};      // and that it has taken
    std::atomic<uint32_t> last_gate{0};   // its mark (progress.h)
    std::atomic<uint32_t> last_mark{0};   // at a gate or without one
    // How many were issued before some of its marks, and how many are known to be done.
    struct Issued {
        std::atomic<uint32_t> mark{0}, count{0};
    } issued_at[8];
    std::atomic<uint32_t> done{0};
    // Its part of what the tenant has launched and is not known to have ended (launch_rule.h).
    struct Launched {
        std::atomic<uint32_t> operations{0}, sms{0}, us{0};
    } launched;
    std::atomic<bool> among_copies{false};  // the last gate that was put into it is that for copies
    // Of operations that the driver was called for and has not taken yet: behind that gate; copies of kBusCopy or more.
    std::atomic<uint32_t> copy_calls{0}, bus_calls{0};
    std::atomic<uint64_t> bus_issued{0};     // `issued` after the last of the latter
    std::atomic<uint64_t> bus_mark{0};       // the mark behind it (progress.h), not cut off; 0: there is none
    std::atomic<StreamState*> was{nullptr};  // its state in the table of the lane whose it was before
    uint32_t number = 0;                     // of its progress word, for good
    // Under the tenant's lock.
    uint32_t used_at = 0;         // its place among those in use
    uint64_t finished = 0;        // `issued` when the watcher last saw the stream empty
    uint64_t bus_done = 0;        // `bus_issued` when it last saw that copy ended
    uint64_t entered_before = 0;  // `entered` when a limit of SMs came (detour_upkeep.cpp)

    // Whether a thread is in the driver with an operation for this stream: a synchronous copy of pageable memory, say.
    bool is_being_called() const { return calls() > 0; }
    bool is_being_called_but_for_copies() const { return calls() > static_cast<int64_t>(copy_calls.load()); }
    int64_t calls() const {
        uint64_t taken = issued.load();
        return static_cast<int64_t>(entered.load() - taken);
    }
    bool is_legacy() const { return is_legacy_stream(key.load(std::memory_order_relaxed)); }
    bool is_default() const { return key.load(std::memory_order_relaxed) & kDefaultStream; }
    bool is_known_by_event() const { return which_default_stream(key.load(std::memory_order_relaxed)) > 1; }
    bool is_destroyed() const { return which_default_stream(key.load(std::memory_order_relaxed)) == kDestroyed; }
    bool is_per_thread() const { return is_known_by_event() && !is_destroyed(); }
};

class StreamTable {
 public:
    static constexpr uint32_t kPlaces = 4096;
    // A table three quarters full is full: look-ups must meet an empty place soon. More streams are served, but not
    // watched.
    static constexpr uint32_t kMostStreams = kPlaces / 4 * 3;

    // Null: it is not there, or was being moved to another place just now. The lock's holder knows.
    StreamState* find(StreamKey key) const {
        for (uint32_t i = home_of(key), tries = 0; tries < kPlaces; i = next(i), ++tries) {
            StreamState* state = places_[i].load(std::memory_order_acquire);
            if (!state) return nullptr;
            if (state->key.load(std::memory_order_acquire) == key) return state;
        }
        return nullptr;
    }

    // Changes when a stream is removed: what a thread remembers of an earlier one may not be true any more.
    uint32_t generation() const { return generation_.load(std::memory_order_acquire); }

    // The caller holds the tenant's lock for the rest.
    StreamState* enter(StreamKey key, CUstream handle, CUcontext context, int gpu);
    void remove(StreamKey key);
    // The stream has this key from now on.
    void rename(StreamState& state, StreamKey key);
    template <class Matches>
    void remove_if(Matches&& matches) {
        for (uint32_t i = used_count_; i-- > 0;)
            if (matches(*used_[i])) remove(used_[i]->key.load(std::memory_order_relaxed));
    }
    template <class Do>
    void for_each(Do&& act) {
        for (uint32_t i = 0; i < used_count_; ++i) act(*used_[i]);
    }

 private:
    friend struct StreamTableInside;  // tests/tenant/streams.cpp

    static uint32_t home_of(StreamKey key) {
        uint64_t mixed = (key >> 4 ^ key >> kContextBits) * 0xff51afd7ed558ccdu;
        return static_cast<uint32_t>(mixed >> 40) % kPlaces;
    }
    static uint32_t next(uint32_t place) { return (place + 1) % kPlaces; }
    void put(StreamState* state, StreamKey key);
    void take_out(uint32_t place);
    uint32_t place_of(StreamKey key) const;
    // Never one that an earlier table of this process, or of the parent it was forked from, has had.
    static uint32_t next_generation() {
        static std::atomic<uint32_t> last{0};
        return last.fetch_add(1) + 1;
    }

    std::atomic<uint32_t> generation_{next_generation()};
    std::atomic<StreamState*> places_[kPlaces]{};
    StreamState* used_[kPlaces]{};
    uint32_t used_count_ = 0;
    StreamState* spare_[kPlaces]{};
    uint32_t spare_count_ = 0;
    uint32_t made_ = 0;  // at most kMostStreams
};

}  // namespace tenant
