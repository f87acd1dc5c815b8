// Some of a segment's GPUs, a bit each; any thread may change it.
#pragma once

#include <atomic>
#include <cstdint>

namespace tenant {

class GpuSet {
 public:
    bool has(int gpu) const { return bits_.load(std::memory_order_relaxed) >> gpu & 1; }
    bool is_empty() const { return !bits_.load(); }
    // The one that is in it; -1: none, or several are.
    int only() const {
        uint32_t bits = bits_.load(std::memory_order_relaxed);
        return bits && !(bits & (bits - 1)) ? __builtin_ctz(bits) : -1;
    }
    // Whether it was not in it before.
    bool add(int gpu) { return !(bits_.fetch_or(1u << gpu) >> gpu & 1); }
    void remove(int gpu) { bits_.fetch_and(~(1u << gpu)); }
    // Removes it; whether it was in it.
    bool take(int gpu) { return bits_.fetch_and(~(1u << gpu)) >> gpu & 1; }
    void set(int gpu, bool in) {
        if (in)
            add(gpu);
        else
            remove(gpu);
    }
    template <class Do>
    void each(Do&& act) const {
        for (uint32_t gpus = bits_.load(); gpus; gpus &= gpus - 1) act(__builtin_ctz(gpus));
    }

 private:
    std::atomic<uint32_t> bits_{0};
};

}  // namespace tenant
