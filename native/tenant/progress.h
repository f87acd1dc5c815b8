// How far streams have got. As a stream passes a gate, the GPU itself writes into host memory how much work had been
// queued in front of it; so the work in flight is known without a call to the driver.
#pragma once

#include <atomic>

#include "tenant/streams.h"

namespace tenant {

class Progress {
 public:
    // Allocates the words; without them nothing is in flight, and nothing waits.
    Progress();

    void* words() { return words_; }  // null: there are none
    static constexpr size_t kBytes = StreamTable::kPlaces * sizeof(uint32_t);

    // What the GPU shall write once all that is queued now is done.
    static uint32_t mark_of(const StreamState& state) {
        return static_cast<uint32_t>(state.queued_ns.load(std::memory_order_relaxed) / 1000);
    }
    uint32_t mark_passed(const StreamState& state) const {
        return words_[state.number].load(std::memory_order_relaxed);
    }
    // Microseconds of work that are not known to be done. Marks wrap around; their difference does not mind.
    float in_flight_us(const StreamState& state) const {
        if (!state.progress_word) return 0;
        auto left = static_cast<int32_t>(mark_of(state) - mark_passed(state));
        return left > 0 ? static_cast<float>(left) : 0;
    }

 private:
    std::atomic<uint32_t>* words_ = nullptr;
};

}  // namespace tenant
