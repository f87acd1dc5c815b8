// The streams that have a stand-in, and the green contexts in which these are (detour.h). Under the detour's lock, but
// for what is atomic.
#pragma once

#include <atomic>

#include "tenant/driver_calls.h"
#include "tenant/locked.h"
#include "tenant/streams.h"
#include "wire/wire.h"

namespace tenant {

namespace detour {

// The driver's own functions, which other calls of the tenant reach by way of the detour.
#define TENANT_DETOUR_CALLS(CALL)                     \
    CALL(cuDevResourceGenerateDesc)                   \
    CALL(cuDevSmResourceSplitByCount)                 \
    CALL(cuDeviceGetAttribute)                        \
    CALL(cuDeviceGetDevResource)                      \
    CALL(cuDevicePrimaryCtxRelease_v2)                \
    CALL(cuEventDestroy_v2)                           \
    CALL(cuEventRecord)                               \
    CALL(cuFuncGetAttribute)                          \
    CALL(cuGreenCtxCreate)                            \
    CALL(cuGreenCtxDestroy)                           \
    CALL(cuGreenCtxStreamCreate)                      \
    CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor) \
    CALL(cuOccupancyMaxActiveClusters)                \
    CALL(cuStreamDestroy_v2)                          \
    CALL(cuStreamGetFlags)                            \
    CALL(cuStreamGetPriority)                         \
    CALL(cuStreamQuery)                               \
    CALL(cuStreamSynchronize)                         \
    CALL(cuStreamWaitEvent)

struct Direct {
#define CALL(function) decltype(&::function) function;
    TENANT_DETOUR_CALLS(CALL)
#undef CALL
};
extern Direct direct;

// `settling`: launches take the lock already, or still, and none begins a detour.
enum Phase : uint32_t { off, settling, on };
extern std::atomic<uint32_t> phase;
extern std::atomic<bool> is_installed;  // before the first call

extern std::atomic<uint32_t> others;  // threads in a call that is no kernel launch
extern std::atomic<uint32_t> away;    // streams, by their places

constexpr int kMostStreams = 32;  // one bit each in `away`
constexpr int kMostSizes = 16;    // green contexts in all: they stay, so that a change costs no more than an event

struct Green {
    CUgreenCtx handle = nullptr;
    CUdevice device = -1;
    uint32_t sms = 0, all = 0;
    uint32_t most_blocks = 0, most_threads = 0;  // in an SM at once
};

struct Place {
    std::atomic<StreamKey> key{kNoStream};
    CUstream home = nullptr;
    CUcontext context = nullptr;
    CUdevice device = -1;
    int gpu = 0;
    bool in_legacy_order = true;  // it waits for the legacy stream, or is it
    CUevent there = nullptr, back = nullptr;
    CUstream streams[kMostSizes] = {};  // by green context
    std::atomic<int> at{0};             // in which of them it is while it is away
};

struct Places {
    Place all[kMostStreams];
    Green greens[kMostSizes];
    std::atomic<int> green_of[wire::kGpus];  // 1 + the one that a GPU's kernels go to; 0: none

    Place* find(StreamKey key) {
        if (key == kNoStream) return nullptr;
        for (Place& one : all)
            if (one.key.load(std::memory_order_acquire) == key) return &one;
        return nullptr;
    }
};
extern Places places;
extern Lock lock;

bool is_away(const Place& one);
void return_home(Place& one);
void return_all();
// Records in the first stream, and lets the second wait for that.
CUresult order(CUstream first, CUevent event, CUstream second);
uint32_t bit_of(const Place& one);

// Why the tenant cannot have fewer SMs.
enum Refusal : uint32_t {
    not_refused = 0,
    began_as_production = 1,
    no_green_contexts = 2,  // the driver has none, or would not make one
    by_mps = 3,             // MPS was told a share at the start, which stays
    unwatched_streams = 4,  // it has too many streams or threads to be watched
    unknown_function = 5,   // it has a driver function that we do not know: it may depend on the order of streams
};
void refuse(Refusal why);
uint32_t refusal();

}  // namespace detour

}  // namespace tenant
