// Events that lanes record. Production may wait for one on the GPU (cuStreamWaitEvent), and then waits at the lane's
// gates that lie before it: they are opened until it is past (let_through.h).
//
// A table of one word an event, which a later event with the same place takes over: what was forgotten waits until
// production is idle, or stands still (lanes.cpp).
#pragma once

#include "tenant/lanes.h"

namespace tenant {

// Only while the process has lanes. The driver has recorded it.
void note_recorded(CUevent event, CUstream stream);

// Around the driver's call that lets a stream wait for an event.
class WaitingForEvent {
 public:
    WaitingForEvent(CUstream stream, CUevent event, bool per_thread_default) {
        LinkedStreams::note_event_wait();
        if (__builtin_expect(Membership::lanes_open() != 0, 0)) begin(stream, event, per_thread_default);
    }
    ~WaitingForEvent() {
        if (waits_) complete();
    }
    WaitingForEvent(const WaitingForEvent&) = delete;
    WaitingForEvent& operator=(const WaitingForEvent&) = delete;

 private:
    void begin(CUstream stream, CUevent event, bool per_thread_default);
    void complete();

    bool waits_ = false;
    CUstream stream_ = nullptr;
    GoingThrough through_;
};

}  // namespace tenant
