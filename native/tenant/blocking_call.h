// Around a call of the driver in which the calling thread may wait for the GPU: counts how long it was in there, for
// its tenant on the GPU of its context, and of production what the thread did since it last waited. What sharing costs
// a job is what these waits grow by.
#pragma once

#include "tenant/membership.h"
#include "tenant/own_time.h"

namespace tenant {

class BlockingCall {
 public:
    // Other calls wait as they please (copies of pageable memory), so their time counts and they do not.
    enum class For : uint8_t { nothing, stream_or_event, context };  // that it has done all
    explicit BlockingCall(For what) : began_ns_(Membership::current_if_joined() ? wire::now_ns() : 0), for_(what) {
        if (began_ns_ && what != For::nothing) own_ = own_time.end(began_ns_);
    }
    ~BlockingCall() {
        if (began_ns_) count();
    }
    BlockingCall(const BlockingCall&) = delete;
    BlockingCall& operator=(const BlockingCall&) = delete;

 private:
    void count() const;

    uint64_t began_ns_;
    For for_;
    OwnTime::Spent own_;
};

}  // namespace tenant
