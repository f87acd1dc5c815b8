// The context that the calling thread is in.
#pragma once

#include "tenant/driver_calls.h"

namespace tenant {

// Null: it is in none, so that the driver will refuse by itself what needs one.
inline CUcontext current_context() {
    CUcontext context = nullptr;
    return driver.cuCtxGetCurrent(&context) == CUDA_SUCCESS ? context : nullptr;
}

// While one exists, the thread is in this context; then in the one before.
class InContext {
 public:
    explicit InContext(CUcontext context) : before_(current_context()) {
        if (before_ == context) return;
        is_there_ = changed_ = driver.cuCtxSetCurrent(context) == CUDA_SUCCESS;
    }
    ~InContext() {
        if (changed_) driver.cuCtxSetCurrent(before_);
    }
    InContext(const InContext&) = delete;
    InContext& operator=(const InContext&) = delete;

    bool is_there() const { return is_there_; }

 private:
    CUcontext before_;
    bool is_there_ = true, changed_ = false;
};

}  // namespace tenant
