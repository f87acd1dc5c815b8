// Amounts as people write them, and as they stand in a tenant's environment: src/cotenant/units.py reads the
// same.
#pragma once

#include <cstdint>

namespace tenant {

// A decimal number as strtod has it, but with a point whatever the program's locale says.
double parse_number(const char* text, const char** end);

// "20G", "1.5 GiB", "800M", a number of bytes; 0: none of these, or too much for a size.
uint64_t parse_size(const char* text);
// "30%", "12.5 %", into millionths; 0: none of these, or over 100%.
uint64_t parse_share(const char* text);

}  // namespace tenant
