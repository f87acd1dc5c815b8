// The watcher sees here what is in the tenant's streams on a GPU, and how much of it is done. It never waits for the
// membership's lock, whose holder may be in the driver, waiting for a gate that only the watcher can open.
#pragma once

#include "tenant/membership.h"

namespace tenant {

struct Seen {
    bool changed = false;     // something was put into a stream since the last look, finished or not
    bool unfinished = false;  // something is in a stream
    bool running = false;     // and does not stand at a gate; copies behind the gate for copies apart
    bool standing = false;    // some stream stands at a gate that is not for copies
    bool called = false;      // a thread is in the driver with an operation
    bool copying = false;     // copies behind the gate for copies run
    bool uses_bus = false;    // a copy of admission::kBusCopy or more is in a stream, or is being called for
    // Of what is unfinished and of what is called for, something is not at or behind the gate for copies.
    bool needs_sms = false, calls_for_sms = false;
    bool is_unknown = false;  // somebody held the lock: partly as of the last look

    bool is_at_work() const { return changed || unfinished || called; }
    bool wants_turn() const { return needs_sms || calls_for_sms; }
};

class StreamActivity {
 public:
    explicit StreamActivity(Membership& membership) : membership_(membership) {}

    Seen see(int gpu);
    // Operations seen finished, and marks passed: changes whenever something has ended.
    uint64_t ends(int gpu) const { return ends_[gpu]; }
    // Shows how much work is in flight, in all streams.
    void show_in_flight(int gpu);

 private:
    Membership& membership_;
    // As of the last look, where there can be none now.
    bool running_[wire::kGpus] = {}, needs_sms_[wire::kGpus] = {};
    uint64_t moves_[wire::kGpus] = {};  // operations issued, and seen finished
    uint64_t ends_[wire::kGpus] = {};
};

}  // namespace tenant
