// The contexts that this process has put work or memory into, whether their streams are watched (streams.h) or not. No
// memory moves before all of them are empty: what runs in one may use memory of another, on another GPU too.
#pragma once

#include "tenant/driver_calls.h"

namespace tenant {

namespace used_contexts {

// From any thread, without a lock or a call of the driver.
void note(CUcontext context);

// For the mover, while the barrier is up: it waits for the work that is there when it begins, by queries only, since a
// stream may stand at a gate or wait for a thread that stands at the barrier.
enum class Drained : uint8_t { yes, not_yet, driver_failed };
void begin_to_drain();
Drained have_drained();

}  // namespace used_contexts

}  // namespace tenant
