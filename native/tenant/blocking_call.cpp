#include "tenant/blocking_call.h"

#include "tenant/context.h"
#include "wire/border.h"

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
    wire::Slot& slot = membership.slot();
    uint64_t now_ns = wire::now_ns(), blocked_ns = now_ns - began_ns_;
    slot.gpus[gpu].blocked_ns.fetch_add(blocked_ns, std::memory_order_relaxed);
    if (for_ == For::nothing) return own_time.leave_out(blocked_ns);
    slot.gpus[gpu].blocking_calls.fetch_add(1, std::memory_order_relaxed);
    slot.own[gpu].cpu_ns.fetch_add(own_.cpu_ns, std::memory_order_relaxed);
    slot.own[gpu].asleep_ns.fetch_add(own_.asleep_ns, std::memory_order_relaxed);
    if (wire::class_of(slot) == wire::production) own_time.begin(now_ns);
    // After a wait for the context nothing holds the GPU.
    if (for_ == For::stream_or_event) membership.note_wait(gpu);
}

}  // namespace tenant
