// The real driver: the table of its functions, filled once by open_driver.
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

// Opens the driver and fills `real`. False: there is none, and all of `real` answers CUDA_ERROR_NO_DEVICE.
bool open_driver();
bool driver_has(int index);
CUresult no_device();

// The C library's dlopen, not ours; null where it is not found.
using Dlopen = void* (*)(const char*, int);
Dlopen real_dlopen();
void* open_past_us(const char* path, int flags);

template <int index, class... Arguments>
CUresult call_real(Arguments... arguments) {
    return reinterpret_cast<CUresult (*)(Arguments...)>(real[index])(arguments...);
}
// The number of the driver function at this address; -1: not one that we know by name.
int index_of(void* address);

}  // namespace shim
