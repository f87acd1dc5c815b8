// The machine as the environment describes it, with what starting its process needs to know.
#pragma once

#include <string>
#include <vector>

#include "model/device_model.h"
#include "softgpu/identity.h"

namespace softgpu {

struct MachineConfiguration {
    std::vector<model::DeviceSpec> devices;  // of a partitioned GPU its instances
    std::vector<model::DeviceSpec> gpus;     // the whole ones
    std::vector<int> gpu_of;                 // one a device: its place in `gpus`
    std::vector<std::string> files;          // one a device
    std::string sharing;                     // "timeslice" or "all-at-once"
    std::string text;                        // all that makes this machine another one than the next
    std::string error;                       // not empty: there are no devices
};

// Read once: a process does not change its machine. COTENANT_SOFTGPU names the devices ("h200", "small,small"; default
// "small", "h200:3g.71gb+1g.18gb" for a GPU in MIG mode with these instances), resolved to device files beside the
// library or given as paths; CUDA_VISIBLE_DEVICES is not applied here.
const MachineConfiguration& machine_configuration();
const std::vector<model::DeviceSpec>& machine();  // its devices

int gpu_of(int machine_index);  // the place of the whole GPU among those of the machine
Uuid gpu_uuid(int gpu);         // of the whole GPU; where it is not partitioned, also the device's

// The folder of the library that this code is linked into.
std::string library_folder();

}  // namespace softgpu
