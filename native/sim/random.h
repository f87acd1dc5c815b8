// Random numbers that are the same on every machine for the same seed.
#pragma once

#include <cmath>
#include <cstdint>

#include "sim/elementary.h"

namespace sim {

class Random {
 public:
    explicit Random(uint64_t seed) {
        for (uint64_t& word : state_) word = scramble(seed);
    }

    uint64_t next() {
        uint64_t result = rotated(state_[1] * 5, 7) * 9, shifted = state_[1] << 17;
        state_[2] ^= state_[0];
        state_[3] ^= state_[1];
        state_[1] ^= state_[2];
        state_[0] ^= state_[3];
        state_[2] ^= shifted;
        state_[3] = rotated(state_[3], 45);
        return result;
    }

    // Above 0, up to 1.
    double uniform() { return static_cast<double>((next() >> 11) + 1) * 0x1p-53; }
    double between(double least, double most) { return least + (most - least) * uniform(); }
    double exponential(double mean) { return -mean * log_of(uniform()); }

    double normal() {
        if (has_spare_) {
            has_spare_ = false;
            return spare_;
        }
        double radius = std::sqrt(-2 * log_of(uniform()));
        Direction direction = direction_of(uniform());
        spare_ = radius * direction.sine;
        has_spare_ = true;
        return radius * direction.cosine;
    }

    // With mean 1.
    double log_normal(double sigma) { return exp_of(sigma * normal() - sigma * sigma / 2); }

 private:
    static uint64_t rotated(uint64_t word, int by) { return (word << by) | (word >> (64 - by)); }
    static uint64_t scramble(uint64_t& seed) {
        uint64_t word = seed += 0x9e3779b97f4a7c15;
        word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
        word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
        return word ^ (word >> 31);
    }

    uint64_t state_[4];
    double spare_ = 0;
    bool has_spare_ = false;
};

}  // namespace sim
