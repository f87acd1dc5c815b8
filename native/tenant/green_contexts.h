// Green contexts: a part of a GPU's SMs with streams of its own, inside the device's primary context. Only the streams
// belong to it; memory and events are the primary context's, and stay when the green context ends.
#pragma once

#include <optional>

#include "tenant/context.h"

namespace tenant {

void know_green_context(CUgreenCtx green, CUdevice device);
void forget_green_context(CUgreenCtx green);
CUdevice device_of(CUgreenCtx green);  // -1: unknown

// The context that owns what is allocated while `context` is current: the primary one of a green context's device.
CUcontext owner_of(CUcontext context);
// The context that owns a stream, likewise; null: the driver does not say.
CUcontext owner_of(CUstream stream);

// While one exists, the thread is in the stream's context: what is allocated in a stream's order is on its device,
// whichever is current. A default stream is the current context's.
class InContextOf {
 public:
    explicit InContextOf(CUstream stream) {
        if (reinterpret_cast<uintptr_t>(stream) <= 2) return;
        CUcontext owner = owner_of(stream);
        is_known_ = owner != nullptr;
        if (owner && owner != owner_of(current_context())) there_.emplace(owner);
    }
    // False: the driver does not know such a stream, and is the one to say so.
    bool is_known() const { return is_known_; }

 private:
    bool is_known_ = true;
    std::optional<InContext> there_;
};

}  // namespace tenant
