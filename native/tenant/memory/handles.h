// Handles of physical memory that the program manages by itself (cuMemCreate, cuMemMap). So that the memory behind a
// mapping can go and come back, the program is given numbers of ours in the place of the driver's handles: the driver's
// changes with every return. What is mapped once, whole, and readable and writable by its own device can move; what is
// exported, bound to a multicast object or mapped twice is pinned.
//
// To be called as Residence's functions are. Each is for numbers of ours and of the driver's alike.
#pragma once

#include "tenant/memory/ledger.h"

namespace tenant {

// The number that the program gets for a new handle.
CUmemGenericAllocationHandle wrap_handle(CUmemGenericAllocationHandle handle, uint64_t bytes,
                                         const CUmemAllocationProp& properties, const Place& place);
// From now on the program gets the driver's own, and what they are of stays: it may hand them to a function that we do
// not know.
void give_out_drivers_handles();
// What the driver knows it by.
CUmemGenericAllocationHandle drivers_handle(CUmemGenericAllocationHandle number);
// It must not move any more: something outside of this process may refer to it.
void pin_handle(CUmemGenericAllocationHandle number);
void pin_memory(CUdeviceptr address, uint64_t bytes);

// `is_ours` false: the driver shall release it.
CUresult release_handle(CUmemGenericAllocationHandle number, bool* is_ours);
// The number of what is mapped there, which must be released once more; false: the driver shall answer.
bool retain_handle(CUdeviceptr pointer, CUmemGenericAllocationHandle* number);

// After the driver has done it.
void note_mapped(CUdeviceptr address, uint64_t bytes, CUmemGenericAllocationHandle number);
void note_unmapped(CUdeviceptr address, uint64_t bytes);
void note_access(CUdeviceptr address, uint64_t bytes, const CUmemAccessDesc* access, size_t count);

}  // namespace tenant
