// Finding the machine's process, or starting it.
#pragma once

#include <string>

namespace softgpu {

// Where the machine has its socket, and where tests may leave a device's clock (clock_file.h).
std::string machine_folder();

// A connected socket that has said hello; -1 with a line in `why` where there is no way.
int connect_to_machine(std::string* why);

}  // namespace softgpu
