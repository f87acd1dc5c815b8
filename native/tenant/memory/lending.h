// Memory that moves, shared with other processes as cuIpcGetMemHandle does: the driver refuses that for memory of this
// kind, so the handle is ours (loan_handle.h), and who opens it (borrowing.h) gets the descriptor of the physical
// allocation from a thread of this process. What is lent is pinned: the borrowers refer to the very pages.
//
// The thread is started by the first loan. It calls no driver, and nothing waits for it. A forked child lends nothing.
#pragma once

#include "tenant/memory/chunks.h"
#include "tenant/memory/loan_handle.h"

namespace tenant {

// All under the residence's lock. Whether the chunk is there for other processes from now on, for good.
bool export_chunk(Chunk& chunk);
// The handle of an allocation in it.
bool lend(const Chunk& chunk, CUdeviceptr base, uint64_t bytes, CUipcMemHandle* out);
// Freed, or about to be: nobody else borrows it. Who has it keeps it.
void end_loan(CUdeviceptr base);
void end_loans_of(Chunk& chunk);

// Whether this very process has made the handle.
bool is_own_loan(const LoanHandle& handle);

}  // namespace tenant
