// IPC export of memory that moves, as cuIpcGetMemHandle does: the driver refuses to export memory of this kind, so the
// handle is ours (ipc_handle.h), and a process that opens it (ipc_import.h) gets the descriptor of the physical
// allocation from a thread of this process. Exported memory is pinned: the importers refer to the very pages.
//
// The first export starts the thread. It does not call the driver, and nothing waits for it. A forked child exports
// nothing.
#pragma once

#include "tenant/memory/chunks.h"
#include "tenant/memory/ipc_handle.h"

namespace tenant {

// All under the residence's lock. Whether the chunk is there for other processes from now on, for good.
bool export_chunk(Chunk& chunk);
// The handle of an allocation in it.
bool export_allocation(const Chunk& chunk, CUdeviceptr base, uint64_t bytes, CUipcMemHandle* out);
// Freed, or about to be: nobody else can import it. Processes that have imported it keep it.
void end_export(CUdeviceptr base);
void end_exports_of(Chunk& chunk);

// Whether this very process has made the handle.
bool is_own_export(const IpcHandle& handle);

}  // namespace tenant
