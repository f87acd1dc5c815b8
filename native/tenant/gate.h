// How the GPU waits at a gate: as one of a batch of memory operations. `Work::pass_gate` (tenant.cpp) puts a gate into
// a stream, graphs.cpp puts gates into graphs, and wire/gates.h opens and closes them.
#pragma once

#include "tenant/driver_calls.h"
#include "wire/wire.h"

namespace tenant {

inline CUstreamBatchMemOpParams wait_for_open(CUdeviceptr gate) {
    CUstreamBatchMemOpParams operation{};
    operation.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    operation.waitValue.address = gate;
    operation.waitValue.value = wire::kGateOpen;
    operation.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    return operation;
}

inline CUstreamBatchMemOpParams write_value(CUdeviceptr word, uint32_t value) {
    CUstreamBatchMemOpParams operation{};
    operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    operation.writeValue.address = word;
    operation.writeValue.value = value;
    operation.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;  // without its barrier, batches do not take it
    return operation;
}

}  // namespace tenant
