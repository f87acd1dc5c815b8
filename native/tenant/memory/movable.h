// cuMemAlloc, cuMemFree and cuIpcGetMemHandle for memory that can move (residence.h). To be called while a Still exists
// (move_barrier.h).
#pragma once

#include "tenant/memory/residence.h"

namespace tenant {

// CUDA_ERROR_NOT_SUPPORTED: the driver shall serve it.
CUresult allocate_movable(CUdeviceptr* out, uint64_t bytes, const Place& place);
// `not_ours`: the driver shall answer. `later`: it is as good as freed, but still there: a capture is open.
enum class Freed : uint8_t { not_ours, now, later };
Freed free_movable(CUdeviceptr pointer, CUresult* result);
// False: the driver shall answer.
bool export_movable(CUdeviceptr pointer, CUipcMemHandle* out);

}  // namespace tenant
