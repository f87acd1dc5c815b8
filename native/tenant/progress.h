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

    // Maps the words for the GPU in the current context, once; the caller is in relaxed capture mode.
    void map();
    void unmapped() { address_.store(0); }  // the mapping has gone with its context

    // The GPU's address of a stream's word; 0: there is none.
    CUdeviceptr word_of(const StreamState& state) const {
        CUdeviceptr address = address_.load(std::memory_order_relaxed);
        return address ? address + state.number * sizeof(uint32_t) : 0;
    }
    // What the GPU shall write once all that is queued now is done.
    static uint32_t mark_of(const StreamState& state) {
        return static_cast<uint32_t>(static_cast<uint64_t>(state.queued_us.load(std::memory_order_relaxed)));
    }
    uint32_t mark_passed(const StreamState& state) const {
        return words_[state.number].load(std::memory_order_relaxed);
    }
    // Microseconds of work that are not known to be done. Marks wrap around; their difference does not mind.
    float in_flight_us(const StreamState& state) const {
        if (!word_of(state)) return 0;
        return static_cast<float>(mark_of(state) - mark_passed(state));
    }

 private:
    static constexpr size_t kBytes = StreamTable::kPlaces * sizeof(uint32_t);

    std::atomic<uint32_t>* words_ = nullptr;
    std::atomic<CUdeviceptr> address_{0};
};

}  // namespace tenant
