// The real driver: opened at the first CUDA call, never before.
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

namespace shim {

struct Index {
    enum : int {
#include "forward_index.inc"
    };
};

extern const char* const names[Index::count];
extern void* real[Index::count];  // the driver's functions; what it lacks answers CUDA_ERROR_NOT_SUPPORTED

bool driver_has(int index);
// The C library's dlopen, not ours.
void* open_past_us(const char* path, int flags);

template <int index, class... Arguments>
CUresult call_real(Arguments... arguments) {
    return reinterpret_cast<CUresult (*)(Arguments...)>(real[index])(arguments...);
}
// The number of the driver function at this address; -1: not one that we know by name.
int index_of(void* address);

}  // namespace shim

// Where each trampoline leads: the resolver at first, then a hook or the driver.
extern "C" void* shim_slots[shim::Index::count] __attribute__((visibility("hidden")));
