// When a tenant begins to note what it does, and when it ends: asked by its environment, by a command, or as it leaves.
#pragma once

#include <cstdint>

namespace tenant {

class Membership;

namespace timeline {

// By the watcher: what lasts is noted up to now, and nothing more after it.
void end_recording(Membership& membership, uint64_t now_ns);

}  // namespace timeline

}  // namespace tenant
