// The clock by which processes compare moments in the segment.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace wire {

// The machine's CLOCK_MONOTONIC, in whatever time namespace we are.
uint64_t now_ns();
void ask_clock_again_in_child();  // a forked child may be in another time namespace

// In either direction: a moment that has not come yet is no sign of life.
inline bool is_within(uint64_t moment_ns, uint64_t ns) {
    int64_t age = static_cast<int64_t>(now_ns() - moment_ns);
    return std::abs(age) < static_cast<int64_t>(ns);
}

}  // namespace wire
