// How much memory there is for this process: the machine's, or what the tightest group around it (a container, a batch
// job) may take.
#pragma once

#include <cstdint>

namespace tenant {

struct HostMemory {
    uint64_t bytes = 0;
    // Of it, nobody has now, but for what the kernel gives up at once, as copies of files. What it does not say is no
    // bound.
    uint64_t left = UINT64_MAX;
    bool is_known = true;  // false: a limit could not be read just now
};

// Where the kernel says which groups this process is in, and what these may take.
HostMemory host_memory(const char* membership = "/proc/self/cgroup", const char* groups = "/sys/fs/cgroup",
                       const char* machine = "/proc/meminfo");

}  // namespace tenant
