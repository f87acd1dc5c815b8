// The segment's first page as a new one has it, and whether one that is found can be used.
#pragma once

#include <string>

#include "wire/wire.h"

namespace wire {

void begin_header(Header& header);
// Whether this build and this kernel can use it; its magic agrees.
bool is_ours(const Header& header, const char* path, std::string* why);

}  // namespace wire
