// This process as a client of MPS: which daemon its contexts live in, and whether they have failed there.
//
// A fatal fault of one client ends the work of all clients of its server, and so does the end of the server. The tenant
// that such a fault touches says so in its slot, in one line on stderr, and in the file COTENANT_MPS_FAULTS: from that
// file the keeper of the daemon (cotenant.mps.keeper) learns that new jobs need another daemon.
#pragma once

#include <atomic>
#include <cstdint>

#include "tenant/driver_calls.h"

namespace tenant {

namespace mps {

// The same for all processes whose pipe directory is the same folder; 0: the contexts of this process are its own.
uint64_t daemon_here();
// The CUresult with which contexts in MPS have failed; 0: none.
uint32_t fault();

extern std::atomic<bool> is_here;  // this process has joined, and its contexts live in MPS
void look_closer(CUresult result);

// What the driver has answered, passed on.
inline CUresult note(CUresult result) {
    if (__builtin_expect(result != CUDA_SUCCESS && is_here.load(std::memory_order_relaxed), 0)) look_closer(result);
    return result;
}

}  // namespace mps

}  // namespace tenant
