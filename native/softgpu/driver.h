// The process's view of the machine: whether cuInit was called, and which devices it may see.
#pragma once

#include "softgpu/entry.h"

namespace softgpu {

constexpr int driver_version = 13000;

// Null: no such device.
const model::DeviceSpec* device_spec(CUdevice device);
int device_attribute(CUdevice device, CUdevice_attribute attribute);  // of an existing device; 0 where unknown
int device_count();

}  // namespace softgpu
