// Which lane (lanes.h) a thread works for.
#pragma once

#include <cstdint>

namespace tenant {

constexpr uint32_t kMostLanes = 8;

// 1 + the lane that the calling thread launches in, or whose watcher it is; 0: it works for its process's own tenant.
inline thread_local uint32_t lane_of_thread = 0;

}  // namespace tenant
