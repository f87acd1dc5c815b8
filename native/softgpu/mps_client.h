// This process as a client of an MPS server, as CUDA_MPS_PIPE_DIRECTORY says. On the software GPU the server is a
// stand-in (tests/mps/stand_in.py), which listens at `softgpu` in the pipe directory, so that NVIDIA's own is let
// alone:
//
//   client -> control   "client PID\n"          control -> client   "server PID NAME\n", or "no REASON\n"
//   client -> server    "client PID\n"          server -> client    "ok\n"; the connection lasts as long as both do
#pragma once

#include <cstdint>

namespace softgpu {

struct MpsClient {
    int connection = -1;        // to the server, which has ended when it is closed
    uint64_t server = 0;        // its process; 0: not under MPS
    unsigned percentage = 100;  // of the SMs: CUDA_MPS_ACTIVE_THREAD_PERCENTAGE
    int priority = 0;           // CUDA_MPS_CLIENT_PRIORITY: 1 is below normal
};

// Once a process, by cuInit. Returns a CUresult: no daemon at all is no error, one that does not answer is.
int join_mps();
const MpsClient& mps_client();

}  // namespace softgpu
