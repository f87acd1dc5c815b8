// Waits on words in memory and writes to them, in stream order.
#pragma once

#include "softgpu/context.h"

namespace softgpu {

// One step for each; checks that the device may touch each word.
CUresult make_value_operations(Context& context, const CUstreamBatchMemOpParams* parameters, unsigned count,
                               unsigned flags, std::vector<Operation>* steps);

}  // namespace softgpu
