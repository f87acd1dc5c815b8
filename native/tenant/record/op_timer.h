// Times operations of a recorded job with pairs of events: begun and ended on the launch path, read by the recorder's
// thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "tenant/event_pair.h"

namespace tenant {

// How far a measured time is to be trusted. Where better ones come, worse ones count for nothing.
enum class Trust : uint8_t {
    first,     // of the shape's first operation: caches are cold, the driver may have loaded code
    starved,   // the GPU waited for the launch; the host's part has been subtracted
    backed_up  // the operation was queued behind others: the events tell its time exactly
};

// Exact times are averaged. Others are sometimes too long, where the host was held up, and never too short: their
// estimate falls at once and rises slowly.
struct Timing {
    uint32_t samples = 0;
    Trust trust = Trust::first;
    double us = 0;
    float min_us = 0, max_us = 0;

    void learn(float sample_us, Trust how);
};

class OpTimer {
 public:
    struct Sample : EventPair {
        void* owner = nullptr;
        uint64_t begun_ns = 0;
        float host_us = 0;  // to subtract where the GPU waited for the launch
        Trust trust = Trust::first;
    };

    // Which of a shape's operations are timed, counted from 0: often until their time is known well, then seldom.
    static bool wants(uint32_t operation) {
        return operation < 16 || (operation < 1024 ? operation % 16 == 0 : operation % 128 == 0);
    }

    // Null: none is free, or the driver would not; the operation goes untimed.
    Sample* begin(void* owner, CUcontext context, CUstream stream);
    // `is_queued`: the call only queues the operation, so that the GPU may have waited for it.
    static void end(Sample* sample, CUstream stream, bool launched, bool is_first, bool is_queued);

    // The recorder's thread. `learn(owner, us, trust)` for each that has ended.
    template <class Learn>
    void collect(Learn&& learn) {
        for (Sample& sample : samples_) {
            float us = 0;
            if (!sample.is_on_its_way() || !sample.is_over(&us)) continue;
            if (us >= 0) learn(sample.owner, std::max(us - sample.host_us, kShortestUs), sample.trust);
            sample.free();
        }
    }
    bool any_on_its_way() const;
    // For a context that has found none, under the lock that keeps contexts from ending: of the unused ones of the
    // others, one in a few is anybody's again.
    void lend_to(CUcontext context);
    // The context's events go with it.
    void forget_context(CUcontext context);

 private:
    static constexpr float kShortestUs = 0.5F;
    static constexpr uint32_t kSamples = 256, kTries = 8, kLentEvery = 4;
    Sample samples_[kSamples];
    std::atomic<uint32_t> next_{0};
};

}  // namespace tenant
