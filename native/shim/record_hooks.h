#pragma once

namespace shim {

// Where COTENANT_RECORD is set: puts a wrapper that writes the call down around each function of hooks.list's `record`
// lines, in front of its hook or of the driver. `hooks` is by function number; null: not hooked.
void wrap_for_recording(void** hooks);

}  // namespace shim
