// Work that reaches the GPU past the hooks, or that cannot be held back as it should: counted, so that it does not go
// unseen.
#pragma once

#include <cstdint>

namespace tenant {

enum class Uncovered : uint8_t {
    unknown_function,  // a name that the driver knew and we did not, handed out as it is
    export_table,      // a table of the driver's private functions, handed out as it is
    ungated_graph,     // a long graph that has no gates inside
    checkpoint,        // of this process or another, by the driver: it takes memory that we do not see go
};
constexpr int kUncoveredKinds = 4;

// Also before the process has a slot.
void count(Uncovered what);

}  // namespace tenant
