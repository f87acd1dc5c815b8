// Keeps cut kernels off the GPU in the gaps of a production burst.
//
// A kernel of a lower class that was cut (native/admission/cut.h) is stopped, not ended. It goes on as soon as none of
// our channels has anything queued, be it for the microseconds between two launches, and our next launch waits for
// another cut: 0.3 ms on an H200, whatever is launched. The gates cannot help, as the kernel has passed its own. The
// hardware stays with us as long as something is queued behind what runs, if it is more than its front end takes at
// once: on an H200 eight kernels are enough, four are not. So in bursts with gaps (native/admission/hold.h) a launching
// thread, once it has launched, fills such a queue in a stream aside, with kernels of one thread that sleep until they
// are told to end, or for kLifeNs. (Not the watcher: its launch may wait for as long as another thread's copy takes.)
//
// They must cost the job little:
//
//   requests  a graph of matrix products takes 4 % longer beside them: there are none unless a kernel that was cut
//             may be on the GPU. A tenant that stands at its gate has none there
//   launches  kQueued at a burst's start, and one for each kLifeNs after that
//   SMs       one thread, in a stream of the lowest priority, and each kernel ends soon: a block that needs a whole SM
//             waits for that, once. While the job's own kernels fill the GPU they wait behind them
//   waiting   a thread that waits for all of a context's work does not wait for them (wait_for_all.h). Other calls of
//             the driver that do so (the unloading of a module) return once the watcher sees the job idle
//   equals    another production job would wait for them: nothing is held while it is at work
//   floors    a tenant below its floor would wait for them, too: nothing is held where somebody has a floor
//   blocks    that rely on each other and do not all fit beside them: nothing moves, and after kStillNs nothing is held
//   the end   of a burst: the watcher tells them by a word in memory, and they are gone in microseconds. The grace
//             (native/admission/grace.h) says which gaps are waited out, and so which are held
#pragma once

#include <atomic>
#include <cstdint>

#include "admission/hold.h"
#include "tenant/driver_calls.h"

namespace tenant {

class Hold {
 public:
    // What a gap may find queued, kEnough or more, is the rest of this: for 3 ms after a burst's start. To longer ones
    // a cut matters little.
    static constexpr uint32_t kQueued = 24, kEnough = 12;
    static constexpr uint32_t kLifeNs = 250000;
    static constexpr uint64_t kStillNs = 5000000;

    // Not in MPS, whose clients share their channels, nor where kernels may take detours (detour.h).
    static bool is_possible();

    void begin_burst() { gaps_.store(admission::gaps_in_a_burst(gaps_.load(), gaps_now_.exchange(0))); }
    void saw_gap() { gaps_now_.fetch_add(1); }
    // Whether the queue is to be filled in this burst, and is too short.
    bool is_due() const;
    // All that is queued ends at once; from any thread.
    void release();

    // The following under the membership's lock. Fills the queue, by a thread that has launched in its current context,
    // where nothing is captured. Of a process's contexts on a GPU the first one that is met has a queue.
    void fill(CUcontext context);
    // The watcher prepares the queue of a context that was met: not on the program's stack, nor in its launch.
    bool is_to_be_prepared() const { return state_.load() == State::met; }
    void prepare();
    // Before the context ends.
    void forget(CUcontext context);

    static inline std::atomic<uint32_t> waiting_for_all{0};    // threads
    static inline std::atomic<uint64_t> waited_for_all_ns{0};  // until then, the last of them

 private:
    // Shared with the GPU, which writes the first.
    struct Words {
        std::atomic<uint32_t> begun;  // the last kernel that has, by its number
        uint32_t apart[31];
        std::atomic<uint32_t> ended;  // up to which number they shall end
    };

    enum class State : uint8_t { unmet, met, ready, without };  // the last where the driver cannot

    bool load();
    bool map_words();
    uint32_t queued() const;
    bool launch();

    std::atomic<State> state_{State::unmet};
    std::atomic<uint32_t> gaps_now_{0};   // of this burst
    std::atomic<float> gaps_{0};          // of a burst, a running mean
    std::atomic<Words*> words_{nullptr};  // made once
    std::atomic<uint32_t> launched_{0};   // the last one's number
    CUcontext context_ = nullptr;         // for which the rest holds
    CUfunction function_ = nullptr;
    CUstream stream_ = nullptr;
    CUdeviceptr address_ = 0;  // where the GPU finds the words
};

}  // namespace tenant
