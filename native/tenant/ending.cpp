// Streams and contexts that end, in all tenants of the process.
#include "tenant/captures.h"
#include "tenant/context.h"
#include "tenant/context_end.h"
#include "tenant/green_contexts.h"
#include "tenant/membership.h"
#include "tenant/tenant.h"

namespace tenant {

namespace {

// Each tenant of the process has pages and streams of its own in a context. By number, since one may join meanwhile.
template <class Do>
void for_each_numbered(Do&& act) {
    if (Membership* own = Membership::current_if_joined()) act(*own, 0);
    for (uint32_t i = 0; i < Membership::lanes_open(); ++i)
        if (Membership* lane = Membership::lane_if_joined(i)) act(*lane, 1 + i);
}

void begin_end_of(CUcontext context, int (&numbers)[1 + Membership::kMostLanes]) {
    for (int& number : numbers) number = GpuPages::kNone;
    for_each_numbered([&](Membership& one, uint32_t i) { numbers[i] = one.begin_end_of(context); });
}

void complete_end(const int (&numbers)[1 + Membership::kMostLanes]) {
    for_each_numbered([&](Membership& one, uint32_t i) { one.complete_end(numbers[i]); });
}

}  // namespace

namespace {

// An event behind what is in the stream, if that has not ended; null: it has, or it cannot be told.
CUevent end_of_work_in(StreamState& state) {
    InContext there(state.context);
    if (!there.is_there() || capture_is_open()) return nullptr;
    if (driver.cuStreamQuery(state.handle) != CUDA_ERROR_NOT_READY) return nullptr;
    CUevent end = nullptr;
    if (driver.cuEventCreate(&end, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return nullptr;
    if (driver.cuEventRecord(end, state.handle) == CUDA_SUCCESS) return end;
    driver.cuEventDestroy_v2(end);
    return nullptr;
}

}  // namespace

// As the driver has it, the work in a destroyed stream goes on: until it ends, the tenant is at work.
EndingStream::EndingStream(CUstream stream) : membership_(Membership::current_if_joined()) {
    if (!membership_) return;
    StreamKey key = key_of_stream(stream);
    MembershipLocked locked(*membership_);
    Membership::for_each([&](Membership& one) {
        StreamState* state = one.streams.find(key);
        CUevent end = state && !state->is_default() ? end_of_work_in(*state) : nullptr;
        StreamKey ended = end ? key_of_destroyed_stream(end) : kNoStream;
        if (ended == kNoStream) return one.streams.remove(key);
        state->last_work.store(end, std::memory_order_release);
        one.streams.rename(*state, ended);
    });
    if (captures.load()) capture_ = captures.find(key);
}

CUresult EndingStream::result(CUresult result) {
    if (!capture_ || result != CUDA_SUCCESS) return result;
    MembershipLocked locked(*membership_);
    captures.remove(capture_);
    return result;
}

EndingGreenContext::EndingGreenContext(CUgreenCtx green) : green_(green) {
    Membership* membership = Membership::current_if_joined();
    CUcontext context = nullptr;
    if (!membership || driver.cuCtxFromGreenCtx(&context, green) != CUDA_SUCCESS) return;
    MembershipLocked locked(*membership);
    auto is_its = [&](const StreamState& state) {
        if (state.is_destroyed()) return false;
        if (state.is_default()) return state.context == context;
        CUcontext owner = nullptr;
        CUgreenCtx its = nullptr;
        return driver.cuStreamGetCtx_v2(state.handle, &owner, &its) == CUDA_SUCCESS && its == green;
    };
    Membership::for_each([&](Membership& one) {
        one.streams.remove_if([&](const StreamState& state) {
            if (!is_its(state)) return false;
            captures.remove(captures.find(state.key.load(std::memory_order_relaxed)));
            return true;
        });
    });
}

CUresult EndingGreenContext::result(CUresult result) {
    if (result == CUDA_SUCCESS) forget_green_context(green_);
    return result;
}

DestroyingContext::DestroyingContext(CUcontext context) : membership_(Membership::current_if_joined()) {
    if (!membership_) return;
    MembershipLocked locked(*membership_);
    begin_end_of(context, ending_);
}

DestroyingContext::~DestroyingContext() {
    if (!membership_) return;
    MembershipLocked locked(*membership_);
    complete_end(ending_);
}

ReleasingPrimary::ReleasingPrimary(CUdevice device) : membership_(Membership::current_if_joined()) {
    if (!membership_) return;
    life_ = PrimaryLife(device);
    membership_->lock();
}

ReleasingPrimary::~ReleasingPrimary() {
    if (!membership_) return;
    if (life_.context() && life_.has_ended()) {
        int ending[1 + Membership::kMostLanes];
        begin_end_of(life_.context(), ending);
        complete_end(ending);
        context_ended(life_.context());
    }
    membership_->unlock();
}

}  // namespace tenant
