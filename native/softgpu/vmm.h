// Physical memory apart from addresses (cuMemCreate): a sparse memory file, so that its pages move between addresses
// and processes with their contents.
#pragma once

#include "softgpu/memory.h"

namespace softgpu {

// The last page of the file, past the memory itself: what an importing process must know.
struct PhysicalNote {
    uint64_t magic;
    uint64_t bytes;
    uint32_t machine_index;  // of the device, or host_index
    uint32_t handle_types;
    static constexpr uint64_t expected_magic = 0x3170676674667333;
    static constexpr uint32_t host_index = UINT32_MAX;
    static constexpr uint64_t room = 4096;
};

struct Physical {
    uint64_t handle = 0;
    int file = -1;
    uint64_t bytes = 0;
    CUmemAllocationProp properties{};
    int accounted_on = -1;  // the device whose capacity it takes; -1: host memory, or another process accounts for it
    int handle_count = 1;   // what cuMemRelease has to be called for; guarded by memory().mutex
    ~Physical();            // not with the lock held
};

// The ordinal that the caller sees of a device of the machine, or -1.
int ordinal_of(uint32_t machine_place);

}  // namespace softgpu
