// Writes the first page of a new segment, and checks whether the first page of an existing one can be used.
#pragma once

#include <string>

#include "wire/wire.h"

namespace wire {

void begin_header(Header& header);
// Whether this build and this kernel can use it; its magic agrees.
bool is_ours(const Header& header, const char* path, std::string* why);

}  // namespace wire
