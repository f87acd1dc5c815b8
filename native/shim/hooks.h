#pragma once

namespace shim {

// Puts the hooks into the slots. `real` is filled.
void install_hooks();
// Our function for the driver's function number `index`; null: not hooked.
void* hook_for(int index);

}  // namespace shim
