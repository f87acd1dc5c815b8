// How long operations run, learned as the job runs: the first few of each shape and then one in a hundred or so are
// timed by a pair of events. A shape is what makes two operations alike: function, grid, block, shared memory; the size
// of a copy; the graph.
#pragma once

#include <atomic>
#include <cstdint>

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

class Durations {
 public:
    // Microseconds; admission::kUnknown for a shape that was not timed yet.
    float estimate(Shape shape) const;
    // Whether the operation that is about to be launched shall be timed.
    bool wants_sample(Shape shape);
    void learn(Shape shape, float us);

    // The longest kernel launched since it was last taken.
    void note_kernel(float us) {
        if (us > longest_us_.load(std::memory_order_relaxed)) longest_us_.store(us, std::memory_order_relaxed);
    }
    float longest() const { return longest_us_.load(std::memory_order_relaxed); }
    float take_longest() { return longest_us_.exchange(0); }

 private:
    std::atomic<float> longest_us_{0};
    // A shape that falls on another's place takes it over: a forgotten shape is learned again.
    struct Entry {
        std::atomic<Shape> shape{0};
        std::atomic<uint32_t> launches{0};
        std::atomic<float> us{-1};
    };
    static constexpr uint32_t kEntries = 4096;
    Entry entries_[kEntries];
    Entry& entry(Shape shape) { return entries_[shape >> 32 & (kEntries - 1)]; }
    const Entry& entry(Shape shape) const { return entries_[shape >> 32 & (kEntries - 1)]; }
};

// Operations being timed. Begun and ended on the launch path, read by the watcher.
class Samples {
 public:
    struct Sample : EventPair {
        Shape shape = 0;
    };

    // Null: none is free, or the driver would not; the operation goes untimed.
    Sample* begin(Shape shape, CUcontext context, CUstream stream);
    static void end(Sample* sample, CUstream stream, bool launched);
    bool any_on_its_way() const;
    void collect(Durations& durations);
    // The context's events have gone with it.
    void forget_context(CUcontext context);

 private:
    Sample samples_[16];
};

}  // namespace tenant
