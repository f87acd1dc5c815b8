// Memory that the driver keeps in stock: pools of stream-ordered allocation, and the memory of graphs. What a stock has
// reserved is counted, used or not: nobody else can have it, and nvidia-smi shows it. A stock grows by steps of 32 MiB
// and shrinks when the program synchronises or trims it, so its size is read from the driver now and again.
#pragma once

#include "tenant/memory/ledger.h"

namespace tenant {

constexpr uint64_t kPoolStep = uint64_t{32} << 20;

// Around an allocation in stream order. What a growth of the pool could take is charged ahead.
class TakingFromPool {
 public:
    TakingFromPool(uint64_t bytes, CUmemoryPool pool, CUstream stream, bool per_thread_default);
    ~TakingFromPool();
    TakingFromPool(const TakingFromPool&) = delete;
    TakingFromPool& operator=(const TakingFromPool&) = delete;

    bool refused() const { return refused_; }
    const Place& place() const { return place_; }
    CUresult result(CUresult result, CUdeviceptr pointer);

 private:
    bool fits_in_stock() const;

    Still still_;
    UnderWay under_way_;
    Place place_;
    uint64_t bytes_;
    CUmemoryPool pool_;
    CUstream stream_;
    uint64_t charged_ = 0;
    bool refused_ = false;
    bool from_stock_ = false;  // the limit leaves no room for the pool to grow
};

void know_pool(CUmemoryPool pool, CUdevice device);

// Around a pool's end: it is not read any more from before the driver is called.
class EndingPool {
 public:
    explicit EndingPool(CUmemoryPool pool);
    CUresult result(CUresult result);

 private:
    UnderWay under_way_;
    CUmemoryPool pool_;
    CUdevice device_ = 0;
    bool known_ = false;
};
// Around the end of a device's primary context, which may end its pools too.
class EndingPools {
 public:
    explicit EndingPools(CUdevice device);
    ~EndingPools();

 private:
    UnderWay under_way_;
    CUdevice device_;
    bool known_ = false;
};

enum class Change : uint8_t { none, shrank, grew };
// Brings the counts of all stocks up to date. If some have grown and some shrunk, they grew.
Change settle_pools(Membership& membership);
void settle_pools();
// Gives back to the GPU what stocks on it hold unused, as the driver does when it has no more.
void trim_pools(const Place& place);

// Whether there is room for what a launch of this graph allocates. The driver takes it at the first launch; so that it
// is there then, it is counted from the graph's instantiation on. One that is away waits before it charges anything.
class TakingForGraph {
 public:
    explicit TakingForGraph(CUgraph graph);
    ~TakingForGraph();
    TakingForGraph(const TakingForGraph&) = delete;
    TakingForGraph& operator=(const TakingForGraph&) = delete;

    bool refused() const { return refused_; }
    void keep_for(CUgraphExec exec);

 private:
    Still still_;
    UnderWay under_way_;
    Place place_;
    uint64_t bytes_ = 0, charged_ = 0;
    bool refused_ = false;
};
void forget_graph_memory(CUgraphExec exec);

}  // namespace tenant
