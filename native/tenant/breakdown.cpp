#include "tenant/breakdown.h"

#include <algorithm>

#include "tenant/context.h"
#include "tenant/timeline.h"
#include "wire/waiting.h"

namespace tenant {

namespace {

constexpr uint64_t kMillisecond = 1000000;
constexpr uint64_t kSampleEveryNs = 20 * kMillisecond;
constexpr uint64_t kPatienceNs = 1000 * kMillisecond;  // of a stream that waits for something else
constexpr uint64_t kWindowNs = 500 * kMillisecond;
constexpr uint64_t kFewestOperations = 20;

}  // namespace

bool Breakdown::begin(const StreamState& state, uint64_t now_ns) {
    uint64_t last = last_begun_ns_.load(std::memory_order_relaxed);
    if (now_ns - last < kSampleEveryNs || !last_begun_ns_.compare_exchange_strong(last, now_ns)) return false;
    // An event is made in the current context, and records into streams of that alone.
    if (current_context() != state.context || !start_.take(state.context)) return false;
    gpu_ = state.gpu;
    begun_ns_ = now_ns;
    if (!start_.begin(state.context, state.handle)) return false;
    start_.hand_over(true);
    return true;
}

void Breakdown::look_at_start(wire::Slot& slot, uint64_t now_ns) {
    if (!start_.is_on_its_way()) return;
    if (!start_.has_begun()) {
        looked_ns_ = now_ns;
        if (now_ns - begun_ns_ < kPatienceNs) return;
    } else {
        // It was somewhere between the last look and this one.
        uint64_t after = looked_ns_ > begun_ns_ ? looked_ns_ - begun_ns_ : 0;
        uint64_t before = std::max(now_ns, begun_ns_) - begun_ns_;
        uint64_t waited_ns = (after + before) / 2;
        wire::OnGpu& here = slot.gpus[gpu_];
        here.waited_ns.fetch_add(waited_ns, std::memory_order_relaxed);
        here.waits.fetch_add(1, std::memory_order_relaxed);
        wire::note_wait(slot.waiting[gpu_], waited_ns);
        timeline::note(timeline::Event::gpu_wait, gpu_, begun_ns_, begun_ns_ + waited_ns);
    }
    start_.free();
}

void Breakdown::saw_streams(wire::OnGpu& here, int gpu, bool are_empty, bool goes_on, uint64_t burst_began_ns,
                            uint64_t now_ns) {
    auto& seen = gpus_[gpu];
    uint64_t since = std::max(seen.looked_ns, burst_began_ns);
    seen.looked_ns = now_ns;
    // Looks come at moments that have nothing to do with the launches: what share of them finds the streams empty is
    // the share of the time in which they are.
    if (are_empty && now_ns > since) seen.empty_ns += now_ns - since;
    if (!goes_on || !seen.empty_ns) return;
    here.gap_ns.fetch_add(seen.empty_ns, std::memory_order_relaxed);
    seen.empty_ns = 0;
}

uint64_t Breakdown::operations(const wire::Figures& figures) {
    auto of = [](const wire::Count& count) { return count.load(std::memory_order_relaxed); };
    return of(figures.kernels) + of(figures.graphs) + of(figures.copies) + of(figures.memory_ops);
}

void Breakdown::weigh(wire::Slot& slot, int gpu, bool alone, uint64_t now_ns) {
    auto& then = gpus_[gpu];
    wire::OnGpu& here = slot.gpus[gpu];
    then.was_alone = then.was_alone && alone;
    uint64_t done = operations(here.figures) - then.operations;
    if (now_ns - then.since_ns < kWindowNs || done < kFewestOperations) return;
    uint64_t busy_ns = here.busy_ns.load(), gap_ns = here.gap_ns.load(), bursts = here.figures.bursts.load();
    uint64_t waits = here.waits.load(), waited_ns = then.was_alone || !waits ? 0 : here.waited_ns.load() / waits;
    auto not_run = static_cast<int64_t>(gap_ns - then.gap_ns + (bursts - then.bursts) * waited_ns);
    int64_t run_ns = std::max<int64_t>(static_cast<int64_t>(busy_ns - then.busy_ns) - not_run, 0);
    auto each_ns = static_cast<uint32_t>(std::min<uint64_t>(static_cast<uint64_t>(run_ns) / done, UINT32_MAX));
    // The first window of all has the program's start in it: it loads, compiles and warms up.
    if (then.since_ns) {
        slot.pace[gpu].now_ns.store(each_ns, std::memory_order_relaxed);
        if (then.was_alone) slot.pace[gpu].alone_ns.store(each_ns, std::memory_order_relaxed);
    }
    then = {then.looked_ns, then.empty_ns, now_ns, busy_ns, gap_ns, then.operations + done, bursts, alone};
}

}  // namespace tenant
