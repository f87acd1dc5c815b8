// How far streams have got. As a stream comes to a gate and as it passes it, the GPU itself writes into host memory how
// much work had been queued in front of it; so the work in flight, and whether the stream stands at the gate with
// nothing of it on the GPU, is known without a call to the driver.
//
//    31                        1   0
//   ┌───────────────────────────┬───┐   mark: microseconds queued in front of the gate, ever
//   │           mark            │ s │   s:    it stands there, and all in front of the gate is done
//   └───────────────────────────┴───┘
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
    static uint32_t standing(uint32_t mark) { return mark << 1 | 1; }
    static uint32_t passed(uint32_t mark) { return mark << 1; }

    uint32_t mark_passed(const StreamState& state) const { return word(state) >> 1; }
    bool stands_at_gate(const StreamState& state) const { return state.progress_word && (word(state) & 1); }
    // Microseconds of work that are not known to be done. Marks wrap around; their difference does not mind.
    float in_flight_us(const StreamState& state) const {
        if (!state.progress_word) return 0;
        auto left = static_cast<int32_t>((mark_of(state) - mark_passed(state)) << 1) >> 1;
        return left > 0 ? static_cast<float>(left) : 0;
    }
    // What an earlier stream with this word has left there, perhaps at a gate with which its context has ended.
    void begin(const StreamState& state) {
        words_[state.number].store(passed(mark_of(state)), std::memory_order_relaxed);
    }

    // Words for graphs that have gates inside (graphs.h), behind those of the streams: 1 while such a graph stands at
    // one. 0: there are no more.
    uint32_t take_graph_word();
    void free_graph_word(uint32_t number);
    bool graph_stands(uint32_t number) const { return words_[number].load(std::memory_order_relaxed) == 1; }

 private:
    static constexpr uint32_t kFirstGraph = StreamTable::kMostStreams + 1;

    uint32_t word(const StreamState& state) const { return words_[state.number].load(std::memory_order_relaxed); }

    std::atomic<uint32_t>* words_ = nullptr;
    std::atomic<bool> graph_words_[StreamTable::kPlaces - kFirstGraph]{};  // taken
};

}  // namespace tenant
