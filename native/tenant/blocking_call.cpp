#include "tenant/blocking_call.h"

#include "tenant/context.h"

namespace tenant {

void BlockingCall::count() const {
    Membership* own = Membership::current_if_joined();
    if (!own) return;
    uint32_t lane = lane_of_thread;
    Membership* in_lane = lane ? Membership::lane_if_joined(lane - 1) : nullptr;
    Membership& membership = in_lane ? *in_lane : *own;
    int gpu = membership.used_gpus.only();
    if (gpu < 0) {
        CUcontext context = current_context();
        gpu = context ? membership.gpu_of(context) : -1;
    }
    if (gpu < 0) return;
    wire::OnGpu& here = membership.slot().gpus[gpu];
    if (for_ != For::nothing) here.blocking_calls.fetch_add(1, std::memory_order_relaxed);
    here.blocked_ns.fetch_add(wire::now_ns() - began_ns_, std::memory_order_relaxed);
    // After a wait for the context nothing holds the GPU.
    if (for_ == For::stream_or_event) membership.note_wait(gpu);
}

}  // namespace tenant
