// The rules orion and reef as a live tenant follows them: each launch asks admission::decide, on the CPU, and waits
// outside the driver until it may go.
//
// In both systems the clients are threads of one process with one scheduler; here they are processes, so each decides
// for itself from what the others say of themselves (wire/launched.h). What a rule is told is what a process can know:
//
//   SMs of a kernel   its blocks over how many of them the driver says fit an SM; of a graph: all
//   class             by its profile (kernel_profile.h); unknown where it has none: a process cannot tell what limits
//                     a kernel
//   time              by its profile, until it is learned (durations.h); one that was never timed takes long
//   below             what lower classes have launched: a stream's part counts until all of the stream has ended
//   production        has work by its busy flag; its kernel is the one that it launched last, which ends when all that
//                     it has launched should have
//   copies            production is taken to copy while it has work and has copied within the last second
#pragma once

#include "admission/moment.h"
#include "tenant/kernel_profile.h"
#include "tenant/membership.h"

namespace tenant {

class LaunchRule {
 public:
    // Before the driver is called. `us` < 0: never timed.
    static void ask(Membership& membership, StreamState& state, bool is_copy, Shape shape, const KernelSize& size,
                    float us);
    // The watcher has seen all of the tenant's streams on this GPU empty.
    static void saw_empty(Membership& membership, int gpu);
};

}  // namespace tenant
