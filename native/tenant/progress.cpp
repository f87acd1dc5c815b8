#include "tenant/progress.h"

#include <sys/mman.h>

#include "tenant/gate.h"

namespace tenant {

Progress::Progress() {
    // Shared: a fork must not part the pages that the GPU writes from those that we read.
    void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) words_ = static_cast<std::atomic<uint32_t>*>(memory);
}

bool Progress::put_mark(StreamState& state) {
    CUstreamBatchMemOpParams mark =
        write_value(state.progress_word, passed(mark_of(state), state.among_copies.load(std::memory_order_relaxed)));
    note_mark(state);
    return driver.cuStreamBatchMemOp_v2(state.handle, 1, &mark, 0) == CUDA_SUCCESS;
}

bool Progress::mark_copy(StreamState& state) {
    // Counted only now that the driver has the copy: no mark of another thread's that reaches this one lies before it.
    uint64_t mark = state.queued_ns.fetch_add(1000, std::memory_order_relaxed) / 1000 + 1;
    if (!put_mark(state)) return false;
    uint64_t last = state.bus_mark.load();
    while (last < mark && !state.bus_mark.compare_exchange_weak(last, mark)) {
    }
    return true;
}

uint32_t Progress::take_graph_word() {
    for (uint32_t i = 0; words_ && i < StreamTable::kPlaces - kFirstGraph; ++i)
        if (!graph_words_[i].load(std::memory_order_relaxed) && !graph_words_[i].exchange(true)) {
            words_[kFirstGraph + i].store(0);
            return kFirstGraph + i;
        }
    return 0;
}

void Progress::free_graph_word(uint32_t number) {
    if (number) graph_words_[number - kFirstGraph].store(false);
}

}  // namespace tenant
