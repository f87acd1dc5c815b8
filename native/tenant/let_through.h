// Where a tenant of a process waits, on the GPU, for another tenant of the same process (it launches into a stream that
// has the other's gates, or waits for an event behind them), the other one's gate must be open until it is past: else
// the one with the higher class waits for the lower one, and the lower one for the higher one to be idle.
//
// The GPU itself says when it is past: each wait has a word of the progress words, which is 1 until the GPU writes 0.
#pragma once

#include <atomic>

#include "tenant/progress.h"

namespace tenant {

class LetThrough {
 public:
    // Before the operation that waits. 0: too many wait at once.
    uint32_t begin(Progress& progress, uint64_t now_ns) {
        uint32_t word = progress.take_graph_word();
        if (!word) return 0;
        progress.raise_word(word);
        for (Wait& wait : waits_) {
            uint32_t nobody = 0;
            if (wait.word.load(std::memory_order_relaxed) || !wait.word.compare_exchange_strong(nobody, kTaken))
                continue;
            wait.since_ns.store(now_ns);
            wait.word.store(word);
            return word;
        }
        progress.free_graph_word(word);
        return 0;
    }
    // It will not be written: the wait is over.
    void cancel(Progress& progress, uint32_t word) {
        for (Wait& wait : waits_) end(progress, wait, word);
    }
    // Whether somebody waits still; also frees the words of those who are past. One that takes very long counts as
    // past: its context may have ended meanwhile.
    bool is_waited_for(Progress& progress, uint64_t now_ns) {
        bool is = false;
        for (Wait& wait : waits_) {
            uint32_t word = wait.word.load();
            if (!word) continue;
            if (word != kTaken && (!progress.is_raised(word) || wait.since_ns.load() + kLongestNs < now_ns))
                end(progress, wait, word);
            else
                is = true;
        }
        return is;
    }

 private:
    static constexpr uint32_t kTaken = ~0u;
    static constexpr uint64_t kLongestNs = 1000000000;
    struct Wait {
        std::atomic<uint32_t> word{0};
        std::atomic<uint64_t> since_ns{0};
    };
    static void end(Progress& progress, Wait& wait, uint32_t word) {
        if (wait.word.compare_exchange_strong(word, 0)) progress.free_graph_word(word);
    }
    Wait waits_[16];
};

}  // namespace tenant
