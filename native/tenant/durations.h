// How long operations run, learned as the job runs: the first few operations of each shape, and then one in a hundred
// or so, and one every few seconds of those that are seldom launched, are timed by a pair of events. Operations of one
// shape are alike: the same function, grid, block and shared memory; the same size of a copy; the same graph.
#pragma once

#include <atomic>
#include <cstdint>

#include "admission/admission.h"
#include "tenant/event_pair.h"

namespace tenant {

using Shape = uint64_t;

inline Shape mix(Shape shape, uint64_t value) {
    shape = (shape ^ value) * 0x9e3779b97f4a7c15u;
    return shape ^ shape >> 29;
}

// Of a kernel, whichever way it is launched.
inline Shape kernel_shape(const void* function, const unsigned int (&grid)[3], const unsigned int (&block)[3],
                          unsigned int shared_bytes) {
    Shape shape = mix(1, reinterpret_cast<uintptr_t>(function));
    for (int i = 0; i < 3; ++i) shape = mix(shape, uint64_t{grid[i]} << 32 | block[i]);
    return mix(shape, shared_bytes);
}

// Of a graph, whichever way it is launched.
inline Shape graph_shape(const void* exec) { return mix(0, reinterpret_cast<uintptr_t>(exec)); }

class Durations {
 public:
    // Microseconds; admission::kUnknown for a shape that was not timed yet.
    float estimate(Shape shape) const {
        const Entry* entry = find(shape);
        return entry ? entry->known.load(std::memory_order_relaxed).of(shape) : admission::kUnknown;
    }
    // Whether the operation that is about to be launched shall be timed.
    bool wants_sample(Shape shape);
    void learn(Shape shape, float us);
    // From the watcher, now and then.
    void pass_time(uint64_t now_ns) { moment_.store(static_cast<uint32_t>(now_ns >> 30), std::memory_order_relaxed); }

    // A graph was instantiated: what the handle stood for before is forgotten. `piece` is how much of it runs from one
    // gate to the next, of the whole, on average over time.
    void begin_graph(Shape shape, float piece);
    float piece_of_graph(Shape shape) const {
        const Entry* entry = find(shape);
        float piece = entry ? entry->piece.load(std::memory_order_relaxed).of(shape) : admission::kUnknown;
        return piece < 0 ? 1 : piece;
    }

    // How many SMs it fills, and admission::Bound; 0 SMs: not noted.
    struct Fill {
        uint32_t sms, bound;
    };
    Fill fill_of(Shape shape) const {
        const Entry* entry = find(shape);
        return entry ? entry->fill.load(std::memory_order_relaxed).of(shape) : Fill{0, 0};
    }
    void note_fill(Shape shape, Fill fill);

    // What is about to run, in pieces of this length that only a cut stops.
    void note_pieces(float us, float piece_us) {
        auto ns = static_cast<uint64_t>(us * 1000);
        noted_ns_.fetch_add(ns, std::memory_order_relaxed);
        noted_squares_.fetch_add(static_cast<uint64_t>(static_cast<float>(ns) * piece_us), std::memory_order_relaxed);
    }
    // Since it was last taken.
    struct Noted {
        double us, squares;
    };
    Noted take_noted() {
        return {static_cast<double>(noted_ns_.exchange(0)) / 1000,
                static_cast<double>(noted_squares_.exchange(0)) / 1000};
    }

 private:
    // A value and whose it is, in one word: an entry may change hands between two loads. With a word's alignment, too:
    // without it clang 14 asks libatomic for the loads, which takes a lock and which we do not link.
    static uint32_t tag_of(Shape shape) { return static_cast<uint32_t>(shape); }
    struct alignas(uint64_t) Known {
        uint32_t tag;
        float value;

        float of(Shape shape) const { return tag == tag_of(shape) ? value : admission::kUnknown; }
    };
    struct alignas(uint64_t) Filled {
        uint32_t tag;
        uint16_t sms, bound;

        Fill of(Shape shape) const { return tag == tag_of(shape) ? Fill{sms, bound} : Fill{0, 0}; }
    };
    static_assert(std::atomic<Known>::is_always_lock_free && std::atomic<Filled>::is_always_lock_free);
    struct Entry {
        std::atomic<Shape> shape{0};
        std::atomic<Known> known{Known{0, admission::kUnknown}};  // microseconds
        std::atomic<uint32_t> launches{0};
        std::atomic<uint32_t> timed_at{0};                        // as `moment_` was
        std::atomic<Known> piece{Known{0, admission::kUnknown}};  // of a graph
        std::atomic<Filled> fill{Filled{0, 0, 0}};
    };
    // A shape can be in one of a few places. If all of them are taken, it replaces the least used shape, which is
    // learned again when it comes back.
    static constexpr uint32_t kSets = 1024, kPlaces = 4;

    Entry* set_of(Shape shape) { return entries_[shape >> 32 & (kSets - 1)]; }
    const Entry* find(Shape shape) const {
        const Entry* set = entries_[shape >> 32 & (kSets - 1)];
        for (uint32_t i = 0; i < kPlaces; ++i)
            if (set[i].shape.load(std::memory_order_relaxed) == shape) return &set[i];
        return nullptr;
    }
    Entry& take_place(Shape shape);

    std::atomic<uint32_t> moment_{0};                       // about a second each
    std::atomic<uint64_t> noted_ns_{0}, noted_squares_{0};  // the latter in ns * us
    Entry entries_[kSets][kPlaces];
};

// Operations being timed. Begun and ended on the launch path, read by the watcher.
class Samples {
 public:
    struct Sample : EventPair {
        Shape shape = 0;
        float scale = 1;        // what is learned: the time, times this
        uint64_t begun_ns = 0;  // 0: the GPU has something else to do before
        float host_us = 0;      // for which the GPU waited for the launch
    };

    // Null: none is free, or the driver would not; the operation goes untimed. `is_kernel`: where the stream is empty,
    // the GPU waits for the launch, and what the launch takes the host is not the kernel's time.
    Sample* begin(Shape shape, CUcontext context, CUstream stream, bool is_kernel, float scale = 1);
    static void end(Sample* sample, CUstream stream, bool launched);
    bool any_on_its_way() const;

    // Under the tenant's lock.
    void collect(Durations& durations);
    // For a context that has found none: a context that has more gives up an unused one.
    void lend_to(CUcontext context);
    // The context's events have gone with it.
    void forget_context(CUcontext context);

 private:
    static constexpr int kSamples = 16;
    int count_of(CUcontext context) const;

    Sample samples_[kSamples];
};

}  // namespace tenant
