// The classes by the names that people use.
#pragma once

#include "wire/wire.h"

namespace tenant {

constexpr const char* kClassNames[wire::kClasses] = {"production", "standard", "opportunistic"};

// What `cotenant run` asked for (COTENANT_CLASS); standard where it says nothing.
wire::Class class_from_environment();

}  // namespace tenant
