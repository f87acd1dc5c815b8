// Lanes: tenants inside one process. A thread that has entered a lane launches as the lane's tenant, which has a slot,
// a watcher, gates and figures of its own; everything else (memory, time slices, captures) is the process's.
//
// A stream belongs to the tenant that last launched into it. Streams that take part in the order of the legacy default
// stream (the default streams themselves, and streams without CU_STREAM_NON_BLOCKING) are the process's own for good: a
// gate there would hold all of them. What a lane launches there counts as escaped.
//
// A process without lanes pays one load of a word a launch.
#pragma once

#include "tenant/membership.h"

namespace tenant {

// Why there is none: numbers of lanes begin at 1.
enum LaneRefusal : int { too_many_lanes = 0, class_above = -1, other_terms = -2 };

// The lane of this name; a name keeps the terms that it was first opened with. Its class is not above the process's.
int open_lane(const LaneTerms& terms);
// The calling thread launches as this lane's tenant from now on; 0: as its process's own. Returns the lane before.
int enter_lane(int lane);
// Operations of the lane that were launched into streams of its process's own; -1: the lane found no slot in the
// segment, and all of its work is its process's.
int64_t escaped_from(int lane);

// Who launches into a stream now, and what that means to others.
struct Launcher {
    Membership* membership;
    Membership* escaped = nullptr;  // the lane whose work this would have been
    Membership* before = nullptr;   // whose gates may be ahead in the stream
    StreamState* moved = nullptr;   // the stream was another tenant's until now: its state there
};
// `own`: the process's. `key`: not kNoStream.
Launcher launcher_into(Membership& own, StreamKey key, CUstream handle);

// The tenant whose stream this is; null: of none yet.
Membership* holder_of(StreamKey key);
bool passes_gates(Membership& membership);

// Around an operation that waits behind a tenant's gates.
class GoingThrough {
 public:
    void begin(Membership& gated, int gpu);
    // In this stream; not while it captures.
    void complete(CUstream stream, CUcontext context);

 private:
    Membership* gated_ = nullptr;
    uint32_t word_ = 0;
    int gpu_ = 0;
};

// Whether the gate of a tenant has to be open for the sake of its own process, whoever is busy.
bool is_let_through(Membership& membership, int gpu, uint64_t now_ns);

}  // namespace tenant
