// A copy between host memory and the GPU goes to the driver in pieces where a higher class uses the bus
// (admission/bus.h). To the program it stays one copy: the pieces are in the order of its stream, other threads put
// nothing between them, and a copy that the driver would refuse is not begun.
//
// Copies of boxes, arrays, peers and batches, copies of managed memory, and what a graph contains stay whole.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tenant/tenant.h"

namespace tenant {

enum class Way : uint8_t { to_gpu, to_host, unknown };

struct HostCopy {
    Way way;
    uint64_t destination, source;
    size_t bytes;
};

// For Work: how much of it goes between host memory and the GPU. Where that would have to be asked for and it is too
// short to matter, 0.
size_t bus_bytes(const HostCopy& copy);

// Copies all pieces but the last. The caller gives that to the function that the program has called, so that the call
// waits for the copy where that function does. Other threads, of any lane, wait until both have been done; if one
// waits, the rest is the last piece, however long.
class CopyAhead {
 public:
    CopyAhead(Work& work, const HostCopy& copy);
    ~CopyAhead() {
        if (is_split_) work_.end_pieces();
    }
    CopyAhead(const CopyAhead&) = delete;
    CopyAhead& operator=(const CopyAhead&) = delete;

    CUresult result() const { return result_; }
    size_t bytes() const { return bytes_; }

 private:
    Work& work_;
    bool is_split_ = false;
    CUresult result_ = CUDA_SUCCESS;
    size_t bytes_ = 0;
};

}  // namespace tenant
