// How long a job's streams must have been empty before it counts as idle, learned from the job's own pauses. Pure.
//
// A pause inside a burst (the CPU prepares the next kernels) is worth waiting out: letting another tenant run costs the
// job a context switch when it continues. A pause between bursts is worth giving away. For a grace g, a pause of length
// p costs
//
//     p            if p < g    nobody used the GPU
//     g + kReturn  otherwise   g was not used, and the job's return is delayed
//
// and the best g is the one that would have cost least over the pauses seen so far, with less weight for older ones.
#pragma once

#include <cstdint>

namespace admission {

class Grace {
 public:
    // What a delayed return is worth in microseconds of somebody else's GPU time: some 0.4 ms, and the job matters
    // more.
    static constexpr float kReturnUs = 3000;
    static constexpr int kFewest = 16;  // pauses, before anything is concluded

    void saw_pause(float us);
    // Microseconds; `otherwise` while too little is known.
    float us(float otherwise) const;

 private:
    // Place i holds the pauses from edge(i) to edge(i + 1); four places for each doubling.
    static constexpr int kPlaces = 56;
    static float edge(int place);
    static int place_of(float us);

    float counts_[kPlaces] = {};
    float sums_[kPlaces] = {};
    int seen_ = 0;
    float best_us_ = 0;
};

}  // namespace admission
