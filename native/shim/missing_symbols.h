// A program may ask for a function by its name, take what it finds for there, and otherwise use an older version
// (numba does). So it must not find, in the driver's place, what the driver does not have.
#pragma once

namespace shim {

// Once the driver is open.
void hide_missing_symbols(const char* own_path);

}  // namespace shim
