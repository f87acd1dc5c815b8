// Around a call of the driver in which the calling thread may wait for the GPU: counts how long it was in there, for
// its tenant on the GPU of its context. What sharing costs a job that is bound by its own CPU is what these waits grow
// by.
#pragma once

#include "tenant/membership.h"

namespace tenant {

class BlockingCall {
 public:
    // Other calls wait as they please (copies of pageable memory), so their time counts and they do not.
    enum class For : uint8_t { nothing, stream_or_event, context };  // that it has done all
    explicit BlockingCall(For what) : began_ns_(Membership::current_if_joined() ? wire::now_ns() : 0), for_(what) {}
    ~BlockingCall() {
        if (began_ns_) count();
    }
    BlockingCall(const BlockingCall&) = delete;
    BlockingCall& operator=(const BlockingCall&) = delete;

 private:
    void count() const;

    uint64_t began_ns_;
    For for_;
};

}  // namespace tenant
