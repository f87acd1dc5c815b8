// Memory that the driver keeps in stock: pools of stream-ordered allocation, and the memory of graphs. What a stock has
// reserved is counted, used or not: nobody else can have it, and nvidia-smi shows it. A stock grows by steps of 32 MiB
// and shrinks when the program synchronises or trims it, so its size is read from the driver now and again.
#pragma once

#include "tenant/memory/ledger.h"

namespace tenant {

constexpr uint64_t kPoolStep = uint64_t{32} << 20;

// Where a pool is; of one that another process has made nothing is known: it is counted where the caller is.
Place place_of_pool(CUmemoryPool pool);
void know_pool(CUmemoryPool pool, const Place& place);  // no place: one of host memory, which counts nowhere
void know_pools_of(const Place& place);                 // the default pool and the graph memory of its device
// Whether the pool holds as much unused; null: the one that the device has now.
bool fits_in_pool(CUmemoryPool pool, const Place& place, uint64_t bytes);
// Something was allocated from it. The program may end the pool first.
void note_pooled(CUmemoryPool pool, const Place& place, CUdeviceptr pointer, uint64_t bytes);

// Around a pool's end: it is not read any more from before the driver is called.
class EndingPool {
 public:
    explicit EndingPool(CUmemoryPool pool);
    CUresult result(CUresult result);

 private:
    UnderWay under_way_;
    CUmemoryPool pool_;
    Place place_;
    uint64_t counted_ = 0;
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

// What a launch of this graph allocates, at most at once, and where. The driver takes it at the first launch; so that
// it is there then, it is counted from the graph's instantiation on.
uint64_t graph_memory_of(CUgraph graph, CUdevice* device);
// What is counted already: graphs that run one after another use the same memory.
uint64_t graph_memory_counted(const Place& place);
void promise_graph_memory(CUgraphExec exec, const Place& place, uint64_t bytes);
struct GraphMemoryPromise {
    CUdevice device;
    uint64_t bytes;
    CUcontext context;  // the exec goes with it
};
// Around the end of an exec, whose handle the driver may give away before it returns.
class EndingGraphMemory {
 public:
    explicit EndingGraphMemory(CUgraphExec exec);
    CUresult result(CUresult result);

 private:
    uint64_t exec_;
    GraphMemoryPromise promise_{};
    bool known_ = false;
};

}  // namespace tenant
