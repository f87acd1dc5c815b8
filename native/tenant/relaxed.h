// While an object of this class exists, its thread may query the driver and allocate without invalidating an open
// capture, its own or another thread's.
#pragma once

#include "tenant/driver_calls.h"

namespace tenant {

class Relaxed {
 public:
    Relaxed() { driver.cuThreadExchangeStreamCaptureMode(&mode_); }
    ~Relaxed() { driver.cuThreadExchangeStreamCaptureMode(&mode_); }
    Relaxed(const Relaxed&) = delete;
    Relaxed& operator=(const Relaxed&) = delete;

 private:
    CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace tenant
