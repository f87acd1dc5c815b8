// What profiles say of kernels (docs/profiles.md), for rules that are asked at each launch (launch_rule.h): their class
// and their time, from the first launch on. The folder COTENANT_KERNEL_PROFILES has a table for each model of GPU,
// which cotenant.profile.tables_for_tenants makes from the profile beside it:
//
//   MODEL.json, MODEL.table     Head, then Entry after Entry, by the first word
//
// A table that is not that of the profile beside it, or that makes no sense, counts as none. It is read once, into
// memory of our own, by the first launch that asks for the GPU's model.
#pragma once

#include <cstdint>

#include "tenant/driver_calls.h"

namespace tenant {

// A kernel as it is launched.
struct KernelSize {
    const void* function = nullptr;  // null: it is no kernel
    unsigned int grid[3] = {}, block[3] = {};
    uint32_t shared_bytes = 0;

    uint64_t blocks() const { return uint64_t{grid[0]} * grid[1] * grid[2]; }
    uint32_t threads() const { return block[0] * block[1] * block[2]; }
};

// Driver functions that not every header declares; null, or answering CUDA_ERROR_NOT_SUPPORTED: this driver has none.
struct NamingCalls {
    CUresult (*cuFuncGetName)(const char**, CUfunction);
    CUresult (*cuKernelGetName)(const char**, void*);
    CUresult (*cuDeviceGetName)(char*, int, CUdevice);
};
extern NamingCalls naming;

struct KernelProfile {
    bool is_there = false;
    uint32_t bound = 0;  // admission::Bound
    float us = -1;       // < 0: not known
};
KernelProfile profile_of(CUdevice device, const KernelSize& size);

}  // namespace tenant
