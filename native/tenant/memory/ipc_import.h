// IPC import of memory that another process exports (ipc_export.h), opened and closed as cuIpcOpenMemHandle and
// cuIpcCloseMemHandle do. Works in any process behind the interposer, tenant or not. The memory is counted in the
// exporter, and stays valid after the exporter has freed it or ended.
#pragma once

#include "tenant/memory/ipc_handle.h"
#include "tenant/memory/residence.h"

namespace tenant {

// False: the handle is the driver's.
bool import_allocation(CUdeviceptr* out, const CUipcMemHandle& handle, unsigned int flags, CUresult* result);
// False: the driver shall answer.
bool close_import(CUdeviceptr address, CUresult* result);

// The allocation that a pointer lies in, as its exporter knows it; false: not imported.
bool imported_range(CUdeviceptr pointer, MovableRange* out);

}  // namespace tenant
