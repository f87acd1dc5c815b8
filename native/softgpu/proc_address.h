// What NVIDIA's driver answers to cuGetProcAddress, recorded and compiled in.
#pragma once

namespace softgpu {

struct ProcAddress {
    const char* name;  // as it is asked for: without version or stream suffix
    bool per_thread;
    int since;  // the CUDA version from which on this one is meant
    void* address;
};

// Sorted by name, per_thread, since.
extern const ProcAddress proc_addresses[];
extern const int proc_address_count;

}  // namespace softgpu
