// How long a job's streams must have been empty before it counts as idle, learned from the job's own pauses. Pure.
//
// A pause inside a burst (the CPU prepares the next kernels) is worth waiting out: letting another tenant run delays
// the job's return by a change of contexts. A pause between bursts is worth giving away. For a grace g, and of all the
// time that was seen,
//
//     share    others could use of the pauses, from g on until the job's return, less what two changes of contexts take
//     returns  the number of pauses longer than g, each at the price of kReturnUs
//
// and the best g is that with the largest
//
//     share / (share + kEnough) - returns
//
// over the pauses seen so far, with less weight for older ones. So what others get counts for much as long as they get
// little: where they have nothing else, a pause of 0.5 ms is given away; where they have nearly all of the time, pauses
// of less than 4 ms are waited out.
#pragma once

#include <cstdint>

namespace admission {

class Grace {
 public:
    static constexpr float kReturnUs = 750;  // of a delay of some 0.2 ms: the job matters more
    static constexpr float kLostUs = 300;    // of a pause, to two changes of contexts
    static constexpr float kEnough = 0.25f;  // the share that counts half
    static constexpr int kFewest = 16;       // pauses, before anything is concluded
    static constexpr int kPlaces = 56;       // place i holds the pauses from its edge to the next; four a doubling

    void saw_pause(double since_us, double until_us);
    // Microseconds; `otherwise` while too little is known.
    float us(float otherwise) const;

 private:
    static int place_of(float us);
    float worth(float grace_us, float longer, float longer_us) const;

    float counts_[kPlaces] = {};
    float sums_[kPlaces] = {};
    float all_us_ = 0;       // pauses and what was between them
    double resumed_us_ = 0;  // after the last pause
    int seen_ = 0;
    float best_us_ = 0;
};

}  // namespace admission
