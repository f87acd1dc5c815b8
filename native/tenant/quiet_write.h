// Writing a line from a thread of the program: a stderr that nobody reads, a full pipe, a terminal that stops writers
// in the background and a limit on the size of files cost the line, never the program.
#pragma once

#include <cstddef>

namespace tenant {

// Leaves errno, the signal mask and pending signals as they were.
void quiet_write(int fd, const char* line, size_t bytes);

}  // namespace tenant
