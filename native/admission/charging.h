// How much GPU time a tenant that passes gates has executed, estimated from looks at its streams; pure.
//
//   executed = the time since the last look, or since its burst began, times the share of it that the hardware gave to
//              this tenant, if its streams have work now, and
//                its gate is open, or
//                what it had started before its gate was closed is still running: it drains, for kDrainNs at most;
//              half of that where the gate has changed since the last look, for nobody knows when;
//              and 0 otherwise
//
// The hardware lets the contexts with work on the GPU run in turn, each for its time slice (time_slices.h): the share
// is the tenant's slice, but for the switch to it, of the slices of all of them. Beside a production job with its slice
// of 1 s that is next to nothing. A context that has no work before its slice ends leaves the rest to the others, and
// nobody sees that: a tenant is not charged for what it gets in the gaps of a burst of a higher class. Lanes of a
// process and clients of MPS are on the GPU at the same time: each is charged an equal part.
//
// One that runs beside the holder of a turn (turns.h) waits for the ends of the other's slices for longer than it runs,
// and nobody sees that either. So it is charged no more than what it has launched since its streams were last empty
// takes alone, and the holder is charged that much less.
//
// A look stands for the time since the last look, but for no more than kLongestLookNs: a tenant that looked so long ago
// was not running either. If its gate's opening has woken the tenant, the look stands for nothing.
#pragma once

#include <algorithm>
#include <cstdint>

#include "admission/turns.h"

namespace admission {

constexpr uint64_t kLongestLookNs = 50000000;

struct Look {
    uint64_t now_ns;
    uint64_t since_ns;   // the last look, or the beginning of the burst
    bool gate_was_open;  // at the last look
    bool gate_is_open;
    bool is_woken;     // whenever its gate is opened
    bool has_work;     // something is in its streams
    bool is_running;   // and does not stand at a gate
    bool is_on;        // what it has started may be on the GPU
    uint64_t stop_ns;  // since when it should have stopped and has not; 0: it may run, or it has stopped
    float share;       // slice_share; of a gate that was closed since the last look, as it was then
};

inline uint64_t executed_ns(const Look& look) {
    // A tenant that has left the GPU, or should have long ago (it waits for something else, or others run beside it),
    // is charged nothing; otherwise it would never be next.
    uint64_t stopping_ns = look.now_ns - std::min(look.now_ns, look.stop_ns);
    bool drains = look.is_running && look.is_on && look.stop_ns && stopping_ns < kDrainNs;
    bool opened = look.gate_is_open && !look.gate_was_open, closed = look.gate_was_open && !look.gate_is_open;
    if (!look.has_work || !(look.gate_is_open || closed || drains) || (opened && look.is_woken)) return 0;
    uint64_t passed_ns = std::min(look.now_ns - std::min(look.now_ns, look.since_ns), kLongestLookNs);
    double part = opened || closed ? 0.5 : 1.0;
    return static_cast<uint64_t>(static_cast<double>(passed_ns) * look.share * part);
}

}  // namespace admission
