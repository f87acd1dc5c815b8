// Frees that take effect later: in stream order, when the stream gets there; or during a capture, when it has ended.
// Until then the memory is counted, and a stream that allocates as much again has it back at once: for that stream it
// is free from the call on.
//
// Frees in one stream take effect in their order, so only the event of the oldest of each stream is queried. No call
// but wait_for_queued_frees waits for the GPU, and none disturbs a capture: the querying thread is in relaxed mode, and
// queries nothing while a capture is open.
#pragma once

#include "tenant/memory/ledger.h"

namespace tenant {

// Whether an allocation in this stream, from the pool that the current device has now, can be of memory that moves.
bool pool_is_movable(CUstream stream, bool per_thread_default);

// During a capture. False: there is no host memory for an entry, and nothing has happened.
bool defer_free(CUdeviceptr pointer);
CUresult defer_free_in(CUdeviceptr pointer, CUstream stream, bool per_thread_default);
bool is_deferred(CUdeviceptr pointer);
// What this stream has freed and is just as large; 0: nothing.
CUdeviceptr take_again(uint64_t bytes, CUstream stream, bool per_thread_default);
// Waits until the GPU has done what is queued now in the stream's context: what its streams have freed is free then.
// The driver itself gives such memory out again without waiting, in any size: an allocation in stream order that finds
// no space is tried once more afterwards. False: it cannot be waited for, or takes too long.
bool wait_for_queued_frees(CUstream stream);
// Its handle may be another stream's soon, which has not freed what this one has.
void end_order_of(CUstream stream);

// Frees what nothing on the GPU uses any more; whether there was any.
bool free_deferred();
bool may_free_deferred();  // whether there could be any
// Looks at one stream only: at each call another.
void free_some_deferred();

// Frees during captures, where the driver cannot say when a context's work has ended: what was freed before a thread
// has waited for the context is free afterwards.
uint64_t deferred_so_far();
void free_deferred_until(uint64_t so_far, CUcontext context);

}  // namespace tenant
