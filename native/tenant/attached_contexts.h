// The contexts that were attached to (cuCtxAttach): as often as that, a detach leaves the context as it is. The next
// one ends it, like cuCtxDestroy, which does so at once.
#pragma once

#include "tenant/driver_calls.h"

namespace tenant {

// After the driver has done it.
void note_attached(CUcontext context);
void note_detached(CUcontext context);
bool is_attached(CUcontext context);

}  // namespace tenant
