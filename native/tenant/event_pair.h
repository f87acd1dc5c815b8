// A pair of events around an operation, to time it: begun and ended on the launch path, read by a thread of ours. The
// events are created at the first use, and end with their context.
#pragma once

#include <atomic>
#include <cstdint>

#include "tenant/driver_calls.h"
#include "tenant/word.h"

namespace tenant {

class EventPair {
 public:
    // For an operation that the calling thread is about to launch. False: it is in use, or another context's.
    bool take(CUcontext context);
    // An unused one gives up its events, so that any context may take it. False: it is in use. The caller holds what
    // keeps contexts from ending.
    bool give_up();
    CUcontext context() const { return context_; }
    bool is_of(CUcontext context) const { return context_ == context; }
    // Once taken. False: the driver would not, and it is free again.
    bool begin(CUcontext context, CUstream stream);
    bool end(CUstream stream) { return driver.cuEventRecord(end_, stream) == CUDA_SUCCESS; }
    bool has_begun() const { return driver.cuEventQuery(begin_) != CUDA_ERROR_NOT_READY; }
    // It is for the thread that reads it from now on, with all that was stored beside it; or free again.
    void hand_over(bool timed) { state_.store(timed ? on_its_way : unused, std::memory_order_release); }

    bool is_on_its_way() const { return state_.load(std::memory_order_acquire) == on_its_way; }
    // Then how long it took, in microseconds; negative: the driver does not say.
    bool is_over(float* us) const;
    void free() { state_.store(unused, std::memory_order_release); }

    void forget();
    void forget_context(CUcontext context) {
        if (is_of(context)) forget();
    }

 private:
    enum State : uint32_t { unused, being_taken, on_its_way };
    std::atomic<uint32_t> state_{unused};
    Word<CUcontext> context_ = nullptr;  // null: there are no events. Also read by those who have not taken it.
    CUevent begin_ = nullptr, end_ = nullptr;
};

}  // namespace tenant
