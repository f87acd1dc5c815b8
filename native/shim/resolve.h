// Where a call that enters the interposer leads: a driver function at its trampoline, and dlopen.
#pragma once

#include "shim/driver.h"

// Where each trampoline leads: the resolver at first, then a hook or the driver.
extern "C" void* shim_slots[shim::Index::count] __attribute__((visibility("hidden")));
