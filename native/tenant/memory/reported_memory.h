// What a tenant with a limit is told about a GPU's memory: as if the limit were all that the GPU has.
#pragma once

#include "tenant/driver_calls.h"

namespace tenant {

struct ReportedMemory {
    uint64_t total;
    uint64_t free;
    uint64_t used;  // by the tenant
};

// Changes what the driver said of the whole GPU to what this tenant can have; false: it has no limit, nothing changed.
bool limit_report(const uint8_t uuid[16], ReportedMemory* report);
bool limit_report(CUdevice device, ReportedMemory* report);
bool limit_report_here(ReportedMemory* report);  // of the current context's GPU

}  // namespace tenant
