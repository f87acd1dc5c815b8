// The open captures, by the stream that each began in. While one is open, no thread of ours touches a stream, and a
// launch first checks whether it is only captured.
//
// A capture ends with cuStreamEndCapture, whatever that returns, or with its stream or its context.
//
// Meanwhile CUDA refuses calls that a graph would not repeat (an allocation, a free), and ends captures because of
// them:
//
//   the calling thread's mode    refuses while there is a capture that
//   global                       this thread began, unless in relaxed mode; or any thread began in global mode
//   thread-local                 this thread began, unless in relaxed mode
//   relaxed                      never
#pragma once

#include <atomic>
#include <cstdint>

#include "tenant/streams.h"

namespace tenant {

class Captures {
 public:
    uint32_t load(std::memory_order order = std::memory_order_seq_cst) const { return count_.load(order); }

    // The tenant's lock is held for the rest.
    void add(StreamKey stream, CUcontext context, CUstreamCaptureMode mode);
    // The number of the capture that began in this stream; 0: none. Numbers are never used again.
    uint64_t find(StreamKey stream) const;
    void remove(uint64_t number);
    void remove_all_of(CUcontext context);
    // Whether CUDA refuses the calling thread such a call; `mode` is the thread's own.
    bool refuse(CUstreamCaptureMode mode) const;

    // In a forked child: what was there belongs to the parent.
    void abandon();

 private:
    struct Open {
        uint64_t number;
        StreamKey stream;
        CUcontext context;
        CUstreamCaptureMode mode;
        uint64_t thread;  // that began it
        Open* next;
    };
    template <class Is>
    void remove_if(Is&& is);

    std::atomic<uint32_t> count_{0};
    Open* first_ = nullptr;
    uint64_t last_number_ = 0;
};

// Of this process, once it is a tenant.
extern Captures captures;

inline bool capture_is_open() { return captures.load(std::memory_order_acquire) != 0; }
// Whether what is put into this stream now only becomes part of a graph.
bool is_captured(CUstream stream, bool per_thread_default);

}  // namespace tenant
