// Where the time of a tenant that passes no gates goes, burst by burst:
//
//   waiting for the GPU  from the launch that began the burst until the GPU reached it: another tenant's kernel had to
//                        end or be cut, and contexts changed. Timed now and then, and only where a lower class uses the
//                        GPU, by an event before the burst's first kernel or graph: copies do not wait for SMs, and
//                        later launches are untouched
//   waiting for itself   its streams were empty inside the burst: the CPU had not launched yet
//   running              the rest. What an operation takes now, compared with when no other tenant was at work, says
//                        whether it runs slower: a lower clock, cold caches, memory bandwidth
#pragma once

#include <atomic>

#include "tenant/event_pair.h"
#include "tenant/streams.h"
#include "wire/wire.h"

namespace tenant {

class Breakdown {
 public:
    // Called by the launching thread before the first kernel or graph of a burst; no capture is open. True: a start is
    // being timed, and the watcher shall look at it soon.
    bool begin(const StreamState& state, uint64_t now_ns);

    // The watcher's.
    bool is_timing() const { return start_.is_on_its_way(); }
    // Under the tenant's lock, while no capture is open.
    void look_at_start(wire::Slot& slot, uint64_t now_ns);
    void forget_context(CUcontext context) { start_.forget_context(context); }
    // At every look at a busy GPU. `goes_on`: the burst has not ended.
    void saw_streams(wire::OnGpu& here, int gpu, bool are_empty, bool goes_on, uint64_t burst_began_ns,
                     uint64_t now_ns);
    void saw_idle(int gpu) { gpus_[gpu].empty_ns = 0; }
    // Every 20 ms or so. `alone`: no other tenant has work on this GPU.
    void weigh(wire::Slot& slot, int gpu, bool alone, uint64_t now_ns);

 private:
    static uint64_t operations(const wire::Figures& figures);

    EventPair start_;
    std::atomic<uint64_t> last_begun_ns_{0};
    // Of the start that is on its way.
    int gpu_ = 0;
    uint64_t begun_ns_ = 0;
    uint64_t looked_ns_ = 0;  // the watcher's: it had not begun then, or this was before it was launched

    struct {
        uint64_t looked_ns = 0;
        uint64_t empty_ns = 0;  // inside the burst, if it goes on
        // As of when the window began.
        uint64_t since_ns = 0, busy_ns = 0, gap_ns = 0, operations = 0, bursts = 0;
        bool was_alone = true;  // all the time since
    } gpus_[wire::kGpus];
};

}  // namespace tenant
