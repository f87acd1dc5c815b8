// Memory that a program holds but has no use for now, such as what a framework's allocator keeps free for later: it
// need not be saved. Only the program knows; a helper in it is asked, when it is paused, and has a moment to answer.
#pragma once

#include "tenant/memory/eviction.h"

namespace tenant {

// None where there is no helper, or it is not quick enough. Valid until the next call.
Unused ask_for_unused();

}  // namespace tenant
