// Finding the machine's process, or starting it.
#pragma once

#include <string>

namespace softgpu {

// A connected socket that has said hello; -1 with a line in `why` where there is no way.
int connect_to_machine(std::string* why);

}  // namespace softgpu
