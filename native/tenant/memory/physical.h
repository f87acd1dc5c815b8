// Physical memory that the program manages by itself (cuMemCreate, cuMemMap): it is there, and counted, for as long as
// a handle or a mapping refers to it.
//
// A program whose memory moves gets numbers of ours in place of the driver's handles, so that the memory behind a
// mapping can be evicted and restored: the driver's handle changes with every restore. Memory that is mapped once,
// whole, and readable and writable by its own device can move; memory that is exported, bound to a multicast object or
// mapped twice is pinned.
//
// To be called while a Still exists (move_barrier.h). Each function takes numbers of ours and the driver's handles
// alike.
#pragma once

#include "tenant/memory/reserve.h"

namespace tenant {

// The driver has created it: what the program gets for a handle.
CUmemGenericAllocationHandle keep_physical(Reservation& reservation, CUmemGenericAllocationHandle handle,
                                           uint64_t bytes, const CUmemAllocationProp& properties);
// From now on the program gets the driver's own handles, and what they are of stays: it may hand them to a function
// that we do not know.
void give_out_drivers_handles();

// Whether it is a number of ours, which the driver does not know.
bool is_number(CUmemGenericAllocationHandle handle);
// What the driver knows it by.
CUmemGenericAllocationHandle drivers_handle(CUmemGenericAllocationHandle handle);

// It must not move any more: something outside of this process may refer to it.
void pin_handle(CUmemGenericAllocationHandle handle);
void pin_memory(CUdeviceptr address, uint64_t bytes);

// A handle for what is mapped there, which must be released once more; false: the driver shall answer.
bool retain_number(CUdeviceptr pointer, CUmemGenericAllocationHandle* handle);
// After the driver has done it.
void retain_physical(CUdeviceptr pointer, CUmemGenericAllocationHandle handle);
void release_physical(CUmemGenericAllocationHandle handle);  // numbers of ours without the driver
void map_physical(CUdeviceptr address, uint64_t bytes, CUmemGenericAllocationHandle handle);
void unmap_physical(CUdeviceptr address, uint64_t bytes);
void set_access(CUdeviceptr address, uint64_t bytes, const CUmemAccessDesc* access, size_t count);

}  // namespace tenant
