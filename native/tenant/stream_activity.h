// The watcher sees here what is in the tenant's streams on a GPU, and how much of it is done. It never waits for the
// membership's lock, whose holder may be in the driver, waiting for a gate that only the watcher can open.
#pragma once

#include "tenant/membership.h"

namespace tenant {

struct Seen {
    bool changed = false;     // something was put into a stream since the last look, finished or not
    bool unfinished = false;  // something is in a stream
    bool running = false;     // and does not stand at a gate
    bool standing = false;    // some stream stands at one
    bool called = false;      // a thread is in the driver with an operation

    bool is_at_work() const { return changed || unfinished || called; }
};

class StreamActivity {
 public:
    explicit StreamActivity(Membership& membership) : membership_(membership) {}

    Seen see(int gpu);
    // Microseconds of work known to be done, of all streams; also shows what is in flight.
    double done_us(int gpu);

 private:
    Membership& membership_;
    // As of the last look, where there can be none now.
    bool running_[wire::kGpus] = {};
    double done_us_[wire::kGpus] = {};
    uint64_t moves_[wire::kGpus] = {};  // operations issued, and seen finished
};

}  // namespace tenant
