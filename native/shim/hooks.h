#pragma once

namespace shim {

// Makes the hooks ready, unless the driver lacks what they need. `real` is filled.
void prepare_hooks();
// Our function for the driver's function number `index`; null: not hooked.
void* hook_for(int index);

}  // namespace shim
