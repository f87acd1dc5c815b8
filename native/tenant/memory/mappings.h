// Physical memory apart from addresses (cuMemCreate): it is there for as long as a handle or a mapping refers to it.
#pragma once

#include "tenant/memory/reserve.h"

namespace tenant {

void keep_physical(Reservation& reservation, CUmemGenericAllocationHandle handle, uint64_t bytes);
void release_physical(CUmemGenericAllocationHandle handle);
void map_physical(CUdeviceptr address, uint64_t bytes, CUmemGenericAllocationHandle handle);
void unmap_physical(CUdeviceptr address, uint64_t bytes);
// The driver has given out a handle for what is mapped there.
void retain_physical(CUmemGenericAllocationHandle handle, uint64_t address);

}  // namespace tenant
