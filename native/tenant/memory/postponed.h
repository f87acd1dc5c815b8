// Frees that take effect later: in stream order, when the stream gets there; or during a capture, when it has ended.
// Until then the memory is counted, and a stream that allocates as much again has it back at once: for that stream it
// is free from the call on.
#pragma once

#include "tenant/memory/ledger.h"

namespace tenant {

bool capture_is_open();
// Whether an allocation in this stream, from the pool that the device has now, can be of memory that moves.
bool pool_is_movable(CUstream stream, bool per_thread_default);

// False: there is no room for it, and nothing has happened.
bool postpone_free(CUdeviceptr pointer);
CUresult postpone_free_in(CUdeviceptr pointer, CUstream stream, bool per_thread_default);
// What this stream has freed and is just as large; 0: nothing.
CUdeviceptr take_again(uint64_t bytes, CUstream stream, bool per_thread_default);
// Frees what nothing on the GPU uses any more.
void free_postponed();

void forget_postponed_of(CUcontext context);  // under the residence's lock
void forget_postponed_in_child();

}  // namespace tenant
