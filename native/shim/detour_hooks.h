// What lies between the hooks and the driver in a process whose kernels may be given fewer SMs
// (native/tenant/detour.h): hooks.list says how each function is treated there, and the build expands that into
// detour.inc.
#pragma once

namespace shim {

// Before the tenant's table of driver functions is filled: its own calls go the same way.
void install_detours();
// And after.
void keep_own_calls_direct();

// The driver's own, whatever lies above it.
void* driver_function(int index);

}  // namespace shim
