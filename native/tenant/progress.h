// How far streams have got. As a stream reaches a gate and as it passes it, the GPU itself writes into host memory how
// much work had been queued before the gate. So the work in flight, and whether the stream stands at the gate with
// nothing on the GPU, is known without a call to the driver.
//
//    31                    2   1   0
//   ┌───────────────────────┬───┬───┐   mark: microseconds of work ever queued before the gate
//   │         mark          │ c │ s │   c:    the gate is that for copies: only copies are between it and the next one
//   └───────────────────────┴───┴───┘   s:    the stream stands at the gate, and all work before it is done
#pragma once

#include <atomic>
#include <iterator>

#include "admission/admission.h"
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
    static uint32_t standing(uint32_t mark, bool copies = false) { return passed(mark, copies) | 1; }
    static uint32_t passed(uint32_t mark, bool copies = false) { return mark << 2 | (copies ? 2 : 0); }

    uint32_t mark_passed(const StreamState& state) const { return word(state) >> 2; }
    bool stands_at_gate(const StreamState& state) const { return state.progress_word && (word(state) & 1); }
    // Whether the gate that it has reached or passed last is that for copies.
    bool is_among_copies(const StreamState& state) const { return state.progress_word && (word(state) & 2); }
    // Microseconds of work that are not known to be done. Marks wrap around; their difference stays right.
    float in_flight_us(const StreamState& state) const {
        if (!state.progress_word) return 0;
        int32_t left = difference(mark_of(state), mark_passed(state));
        return left > 0 ? static_cast<float>(left) : 0;
    }
    // Whether a gate lies between what is put into the stream now and what of it may run.
    bool gate_is_ahead(const StreamState& state) const {
        if (!state.progress_word) return false;
        uint32_t now = word(state);
        int32_t left = difference(state.last_gate.load(std::memory_order_relaxed), now >> 2);
        return left > 0 || (left == 0 && (now & 1));
    }
    // Whether the stream has yet to reach a mark, or has nothing behind its last one. Otherwise the watcher would not
    // see it run empty.
    bool mark_is_ahead(const StreamState& state) const {
        uint32_t last = state.last_mark.load(std::memory_order_relaxed);
        return last == mark_of(state) || difference(last, mark_passed(state)) > 0;
    }
    // Of a mark that the stream is about to be given.
    static void note_mark(StreamState& state) {
        state.last_mark.store(mark_of(state), std::memory_order_relaxed);
        auto issued = static_cast<uint32_t>(state.issued.load(std::memory_order_relaxed));
        auto& place = state.issued_at[issued / kIssuedApart % std::size(state.issued_at)];
        if (issued - place.count.load(std::memory_order_relaxed) < kIssuedApart) return;
        place.mark.store(mark_of(state), std::memory_order_relaxed);
        place.count.store(issued, std::memory_order_release);  // whoever sees it sees its mark, or a later one
    }
    // Puts one into the stream. False: the driver would not.
    static bool put_mark(StreamState& state);
    // Puts one behind a copy of admission::kBusCopy or more that the driver has just taken. False: as above.
    static bool mark_copy(StreamState& state);
    // Whether such a copy may be in the stream. Its call counts until it has said how many were issued; without a mark
    // behind it, it counts until the stream has run empty. Under the tenant's lock.
    bool uses_bus(StreamState& state) const {
        if (state.bus_calls.load()) return true;
        uint64_t issued = state.bus_issued.load(), mark = state.bus_mark.load();
        if (issued <= state.finished || issued <= state.bus_done) return false;
        if (!mark || difference(static_cast<uint32_t>(mark), mark_passed(state)) > 0) return true;
        state.bus_done = issued;
        return false;
    }
    // At most: what is done since the last noted mark is not seen.
    uint32_t operations_in_flight(StreamState& state) const {
        auto issued = static_cast<uint32_t>(state.issued.load(std::memory_order_relaxed));
        uint32_t done = state.done.load(std::memory_order_relaxed);
        if (!state.progress_word) return 0;
        if (issued - done <= admission::kMostOperations) return issued - done;
        uint32_t passed = mark_passed(state);
        for (auto& place : state.issued_at) {
            uint32_t count = place.count.load(std::memory_order_acquire);
            bool is_newer = static_cast<int32_t>(count - done) > 0;
            if (is_newer && difference(passed, place.mark.load(std::memory_order_relaxed)) >= 0) done = count;
        }
        state.done.store(done, std::memory_order_relaxed);
        return issued - done;
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
    // A word of the same kind that is 1 until the GPU has reached some place (let_through.h).
    void raise_word(uint32_t number) { words_[number].store(1); }
    bool is_raised(uint32_t number) const { return graph_stands(number); }

 private:
    static constexpr uint32_t kIssuedApart = 64;
    static int32_t difference(uint32_t mark, uint32_t other) { return static_cast<int32_t>((mark - other) << 2) >> 2; }

    static constexpr uint32_t kFirstGraph = StreamTable::kMostStreams + 1;

    uint32_t word(const StreamState& state) const { return words_[state.number].load(std::memory_order_relaxed); }

    std::atomic<uint32_t>* words_ = nullptr;
    std::atomic<bool> graph_words_[StreamTable::kPlaces - kFirstGraph]{};  // taken
};

}  // namespace tenant
