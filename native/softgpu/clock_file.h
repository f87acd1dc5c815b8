// A device whose clock falls, for tests: "key = value" lines in the file clock.N of the machine's folder (N: the
// device's index), read again for every question that NVML is asked.
//
//   clock_mhz = 1455     of the SMs; without it the device's highest
//   power_w = 698        without it NVML does not say
//   reasons = 4          the bits of nvmlClocksEventReasons: 4 is the power limit
//   answer = 15          the nvmlReturn_t of every such question, here NVML_ERROR_GPU_IS_LOST
//   wait_ms = 5000       before it is answered
#pragma once

#include <cstdint>

namespace softgpu {

struct ClockFile {
    double clock_mhz = 0, power_w = 0, wait_ms = 0;
    uint64_t reasons = 0;
    int answer = 0;
};

ClockFile read_clock_file(int machine_index);

}  // namespace softgpu
