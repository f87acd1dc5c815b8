// Around a call of the driver that waits for all of a context's work: not for what holds the GPU (hold.h), which ends
// now and does not begin again before the call has returned.
#pragma once

namespace tenant {

class WaitForAll {
 public:
    WaitForAll();
    ~WaitForAll();
    WaitForAll(const WaitForAll&) = delete;
    WaitForAll& operator=(const WaitForAll&) = delete;
};

}  // namespace tenant
