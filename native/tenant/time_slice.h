// How long the hardware lets this process's channels run before another process gets its turn. The driver sets that
// itself, once for each channel group it makes, by an unprivileged call to the kernel; we change the number on its way.
#pragma once

#include <cstdint>

namespace tenant {

// What the driver asks the kernel for, and what it got, in microseconds. 0: nothing was asked for yet.
struct TimeSlice {
    uint32_t asked_us;
    uint32_t granted_us;
    bool refused;  // the kernel did not take ours; the driver's own holds
};

TimeSlice time_slice();

// The slice of a class; 0: leave the driver's.
uint32_t time_slice_of_class(uint32_t tenant_class);

// Sets it for the channel groups made so far, too; for a class that changes while the job runs.
void set_time_slice(uint32_t us);

}  // namespace tenant
