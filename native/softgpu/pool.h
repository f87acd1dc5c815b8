// Stream-ordered allocation: a pool carves what streams ask for out of blocks that it holds of the device.
//
// Memory freed in a stream may be taken again at once by the same stream, since its work is in order, and by anyone
// once the free was reached. What lies unused beyond the release threshold goes back to the device when the host
// synchronises.
#pragma once

#include <list>

#include "softgpu/memory.h"

namespace softgpu {

// A stream as far as order is concerned: the default streams are told apart by what they are, not by a null handle.
struct StreamKey {
    CUstream stream;
    uint64_t thread;  // of a per-thread default stream, else 0
    bool operator==(const StreamKey& other) const { return stream == other.stream && thread == other.thread; }
};
StreamKey key_of(CUstream stream, DefaultStream which);

// Guarded by memory().mutex, but for what never changes.
struct Pool {
    struct PendingFree {
        uint64_t id;
        StreamKey stream;
        Span piece;
    };

    CUmemoryPool handle = nullptr;
    int device = 0;
    bool is_default = false;
    uint64_t max_bytes = 0;  // 0: no limit but the device's
    Blocks blocks;
    std::list<PendingFree> pending;
    uint64_t release_threshold = 0;
    uint64_t used = 0;

    uint64_t take(uint64_t bytes, const StreamKey& stream);  // 0: no room in what it holds
    void add_block(Span block);
    void give_back(Span piece);
    void finish_free(uint64_t id);
};

}  // namespace softgpu
