// The machine as the environment describes it, with what starting its process needs to know.
#pragma once

#include <string>
#include <vector>

#include "model/device_model.h"

namespace softgpu {

struct MachineConfiguration {
    std::vector<model::DeviceSpec> devices;
    std::vector<std::string> files;  // one a device
    std::string sharing;             // "timeslice" or "all-at-once"
    std::string text;                // all that makes this machine another one than the next
    std::string error;               // not empty: there are no devices
};

// Read once: a process does not change its machine.
const MachineConfiguration& machine_configuration();

// The folder of the library that this code is linked into.
std::string library_folder();

}  // namespace softgpu
