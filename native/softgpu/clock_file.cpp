#include "softgpu/clock_file.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "softgpu/engine_start.h"

namespace softgpu {

ClockFile read_clock_file(int machine_index) {
    ClockFile found;
    std::ifstream file(machine_folder() + "/clock." + std::to_string(machine_index));
    for (std::string line, key, equals, value; std::getline(file, line);) {
        std::istringstream words(line);
        if (!(words >> key >> equals >> value)) continue;
        if (key == "clock_mhz") found.clock_mhz = std::strtod(value.c_str(), nullptr);
        if (key == "power_w") found.power_w = std::strtod(value.c_str(), nullptr);
        if (key == "wait_ms") found.wait_ms = std::strtod(value.c_str(), nullptr);
        if (key == "reasons") found.reasons = std::strtoull(value.c_str(), nullptr, 0);
        if (key == "answer") found.answer = std::atoi(value.c_str());
    }
    return found;
}

}  // namespace softgpu
