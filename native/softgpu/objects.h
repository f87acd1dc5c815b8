// The contract between the driver's objects (contexts, streams, graphs: driver.cpp and its neighbours) and
// device memory with its copies (memory.cpp and its neighbours). Handles that callers hold are never trusted:
// each is looked up in a registry before it is used.
#pragma once

#include <cuda.h>

#include <functional>
#include <memory>
#include <vector>

#include "softgpu/engine.h"

namespace softgpu {

// One stream-ordered operation: what it costs, what it does, and how it would look as a graph node.
struct Operation {
    model::Work work;
    Effect effect;                    // may be empty
    std::function<bool()> until;      // instead of work and effect: ends when this is true (Engine::submit_wait)
    std::function<void()> host_call;  // instead of work and effect: runs in stream order (Engine::submit_host)
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    // How a graph describes it: a CUDA_MEMCPY3D for MEMCPY, a CUDA_MEMSET_NODE_PARAMS for MEMSET, a
    // CUDA_MEM_ALLOC_NODE_PARAMS for MEM_ALLOC, a CUdeviceptr for MEM_FREE; empty for other types.
    std::shared_ptr<const void> node_params;
};

struct Context;
using ContextRef = std::shared_ptr<Context>;

// The calling thread's current context, alive and without a sticky error; else the error that the driver would give
// (NOT_INITIALIZED, INVALID_CONTEXT, CONTEXT_IS_DESTROYED, the sticky one).
CUresult current_context(ContextRef* out);
Engine& engine_of(Context& context);
int device_of(const Context& context);      // the ordinal the caller sees
ContextRef context_from(CUcontext handle);  // null: not a live context
CUcontext handle_of(const Context& context);
// CUDA_SUCCESS where cuInit was called in this process (not in its parent), else CUDA_ERROR_NOT_INITIALIZED.
CUresult check_initialised();
// Where a device that the caller names is in machine(), or -1: no such device (CUDA_VISIBLE_DEVICES is applied here).
int machine_index(CUdevice device);

// Which default stream the null handle means: plain entry points say legacy, _ptsz/_ptds ones per_thread.
enum class DefaultStream { legacy, per_thread };

// Puts an operation into a stream, or into the graph being captured there. `done` gets the id when it was submitted
// (0 when captured). Applies the legacy stream's ordering, pending event waits and capture rules.
CUresult enqueue(CUstream stream, DefaultStream which, Operation operation, OpId* done = nullptr);
// The same, then sleeps until it is done: the synchronous calls. Refused where the stream captures or would have to
// wait for one that does; captures elsewhere do not mind it, whatever their mode.
CUresult enqueue_and_wait(CUstream stream, DefaultStream which, Operation operation);
// A call that is not allowed while any thread captures in global mode (cudaMalloc and friends):
// CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED and the capture becomes invalid; CUDA_SUCCESS otherwise.
CUresult unsafe_during_capture();
// Waits for everything submitted to the context (cuCtxSynchronize, cuMemFree's implicit one).
CUresult synchronize(Context& context);

// ---- memory.cpp -----------------------------------------------------------------------------------------------------

// What device_can_access said stays true while one of these lives: memory is not unmapped. For effects, from their
// checks to their last touch; never around a call into the engine. Holds may nest.
class MemoryHold {
 public:
    MemoryHold();
    ~MemoryHold();
    MemoryHold(const MemoryHold&) = delete;
    MemoryHold& operator=(const MemoryHold&) = delete;
};
// Whether a kernel or copy on this context's device may touch [pointer, pointer + bytes): device allocations, mapped
// and accessible virtual memory, registered or allocated host memory. Checked when the operation runs, not when it is
// queued.
bool device_can_access(const Context& context, CUdeviceptr pointer, size_t bytes);
// Where this process touches what the device may: elsewhere than `pointer` where registered pages were mapped a second
// time. With a MemoryHold.
uint64_t place_here(CUdeviceptr pointer);
// Validate now, build what runs later.
CUresult make_copy(const CUDA_MEMCPY3D& copy, Operation* out);
CUresult make_memset(const CUDA_MEMSET_NODE_PARAMS& fill, Operation* out);
// After every synchronisation by the host (stream, event, context): pools give the device what they hold beyond their
// release threshold. Cheap when there is nothing to give.
void trim_pools(Context& context);
// Frees what a context owned (its allocations, pools' shares, registrations).
void release_memory_of(Context& context);

}  // namespace softgpu
