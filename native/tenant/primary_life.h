// A device's primary context from when it is first retained to when the last has released it. The next one may have
// the same handle; the driver gives it another number.
#pragma once

#include "tenant/driver_calls.h"

namespace tenant {

class PrimaryLife {
 public:
    PrimaryLife() = default;
    explicit PrimaryLife(CUdevice device) : device_(device) {
        unsigned int flags = 0;
        int active = 0;
        is_there_ = driver.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active;
        if (!is_there_ || driver.cuDevicePrimaryCtxRetain(&context_, device) != CUDA_SUCCESS) return;
        if (driver.cuCtxGetId(context_, &number_) != CUDA_SUCCESS) number_ = 0;
        driver.cuDevicePrimaryCtxRelease_v2(device);
    }

    // Null: there is none, or the driver does not say.
    CUcontext context() const { return context_; }
    // Another thread may have begun the next one.
    bool has_ended() const {
        PrimaryLife now(device_);
        return !now.is_there_ || (now.number_ && now.number_ != number_);
    }

 private:
    CUdevice device_ = -1;
    bool is_there_ = false;
    CUcontext context_ = nullptr;
    unsigned long long number_ = 0;  // 0: the driver does not say, of a context that has failed, say
};

}  // namespace tenant
