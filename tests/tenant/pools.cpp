// pools CASE: what the driver keeps in stock (native/tenant/memory/pools.h), over a driver of this test's own with two
// GPUs: the count is what it has reserved, on the GPU where it is.
#include "tenant/memory/pools.h"

#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "../require.h"
#include "tenant/context_end.h"
#include "tenant/fork.h"
#include "tenant/green_contexts.h"
#include "tenant/membership.h"

namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr int kFirstGpu = 5;  // in the segment: numbers differ from the driver's
alignas(16) char nobody[16];  // stands for a membership: only its address is used
tenant::Membership* const membership = reinterpret_cast<tenant::Membership*>(nobody);

struct Stock {
    CUdevice device;
    uint64_t reserved = 0, used = 0;
};
std::map<CUmemoryPool, Stock> stocks;
uint64_t graph_reserved[2] = {};
CUdevice current = 0;
std::set<CUmemoryPool> trimmed;
std::set<CUdevice> graph_trimmed;
std::map<int, int64_t> counted;
std::map<CUdeviceptr, CUmemoryPool> remembered;
std::map<CUmemoryPool, uint64_t> left_behind;

CUmemoryPool pool_at(uint64_t number) { return reinterpret_cast<CUmemoryPool>(number * 16); }
CUmemoryPool own_pool(CUdevice device) { return pool_at(1 + static_cast<uint64_t>(device)); }
CUgraphExec exec_at(uint64_t number) { return reinterpret_cast<CUgraphExec>(number * 16); }

CUresult default_pool(CUmemoryPool* out, CUdevice device) {
    *out = own_pool(device);
    return CUDA_SUCCESS;
}
CUresult attribute(CUmemoryPool pool, CUmemPool_attribute which, void* out) {
    REQUIRE(stocks.count(pool));
    uint64_t value = which == CU_MEMPOOL_ATTR_USED_MEM_CURRENT ? stocks[pool].used : stocks[pool].reserved;
    memcpy(out, &value, sizeof value);
    return CUDA_SUCCESS;
}
CUresult graph_attribute(CUdevice device, CUgraphMem_attribute, void* out) {
    memcpy(out, &graph_reserved[device], sizeof graph_reserved[device]);
    return CUDA_SUCCESS;
}
CUresult trim(CUmemoryPool pool, size_t keep) {
    REQUIRE(stocks.count(pool) && keep == 0);
    trimmed.insert(pool);
    stocks[pool].reserved = stocks[pool].used;
    return CUDA_SUCCESS;
}
CUresult trim_graphs(CUdevice device) {
    graph_trimmed.insert(device);
    graph_reserved[device] = 0;
    return CUDA_SUCCESS;
}
CUresult device_count(int* out) {
    *out = 2;
    return CUDA_SUCCESS;
}
CUresult exchange_mode(CUstreamCaptureMode*) { return CUDA_SUCCESS; }
CUcontext context_at(uint64_t number) { return reinterpret_cast<CUcontext>(number * 16); }
CUcontext current_one = context_at(1);
CUresult get_current(CUcontext* out) {
    *out = current_one;
    return CUDA_SUCCESS;
}

// A graph: positive sizes allocate, and its negative frees what was allocated under the same number.
struct Node {
    CUdeviceptr pointer;
    int64_t mebibytes;
    CUdevice device;
};
std::vector<Node> nodes;
const Node& node_of(CUgraphNode node) { return nodes[reinterpret_cast<uintptr_t>(node) - 1]; }
CUresult get_nodes(CUgraph, CUgraphNode* out, size_t* count) {
    for (size_t i = 0; out && i < nodes.size(); ++i) out[i] = reinterpret_cast<CUgraphNode>(i + 1);
    *count = nodes.size();
    return CUDA_SUCCESS;
}
CUresult type_of(CUgraphNode node, CUgraphNodeType* out) {
    *out = node_of(node).mebibytes > 0   ? CU_GRAPH_NODE_TYPE_MEM_ALLOC
           : node_of(node).mebibytes < 0 ? CU_GRAPH_NODE_TYPE_MEM_FREE
                                         : CU_GRAPH_NODE_TYPE_KERNEL;
    return CUDA_SUCCESS;
}
CUresult allocated_by(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* out) {
    out->dptr = node_of(node).pointer;
    out->bytesize = static_cast<size_t>(node_of(node).mebibytes) * kMiB;
    out->poolProps.location.id = node_of(node).device;
    return CUDA_SUCCESS;
}
CUresult freed_by(CUgraphNode node, CUdeviceptr* out) {
    *out = node_of(node).pointer;
    return CUDA_SUCCESS;
}

}  // namespace

// The rest of the tenant, as far as it is asked.
namespace tenant {

DriverCalls driver;
[[maybe_unused]] const bool has_joined = (not_inherited.joined.store(membership), true);
Membership* Membership::join() { return nullptr; }
CUcontext owner_of(CUcontext context) { return context; }
Lock ledger_lock{Rank::ledger};
LedgerLocked::LedgerLocked() : Locked(ledger_lock) {}
UnderWay::UnderWay() = default;
UnderWay::~UnderWay() = default;
Place place_of_device(CUdevice device) { return {membership, device, kFirstGpu + device}; }
Place place_of_current_context() { return place_of_device(current); }
void correct(const Place& place, uint64_t charged, uint64_t taken) {
    counted[place.gpu] += static_cast<int64_t>(taken) - static_cast<int64_t>(charged);
}
void remember_pooled(const Place&, CUdeviceptr pointer, uint64_t, CUmemoryPool pool) { remembered[pointer] = pool; }
uint64_t count_one_by_one(CUmemoryPool pool) { return left_behind[pool]; }

}  // namespace tenant

namespace {

using namespace tenant;

bool counts(uint64_t first, uint64_t second) {
    settle_pools();
    return counted[kFirstGpu] == static_cast<int64_t>(first * kMiB) &&
           counted[kFirstGpu + 1] == static_cast<int64_t>(second * kMiB);
}
CUmemoryPool made(uint64_t number, CUdevice device) {
    stocks[pool_at(number)] = {device};
    know_pool(pool_at(number), place_of_device(device));
    return pool_at(number);
}
bool destroy(CUmemoryPool pool, CUresult result = CUDA_SUCCESS) {
    EndingPool ending(pool);
    if (result == CUDA_SUCCESS) stocks.erase(pool);
    return ending.result(result) == result;
}

// Each pool is counted where it is, from its making to its end, whichever GPU is current.
void lives() {
    for (CUdevice device : {0, 1}) know_pools_of(place_of_device(device)), know_pools_of(place_of_device(device));
    stocks[own_pool(0)].reserved = 32 * kMiB;
    REQUIRE(settle_pools(*membership) == Change::grew && settle_pools(*membership) == Change::none && counts(32, 0));
    CUmemoryPool first = made(10, 0), second = made(11, 1);
    stocks[second].reserved = 64 * kMiB;
    stocks[first].reserved = 96 * kMiB;
    REQUIRE(counts(128, 64));
    REQUIRE(place_of_pool(second).gpu == kFirstGpu + 1 && place_of_pool(first).gpu == kFirstGpu);
    REQUIRE(place_of_pool(own_pool(1)).gpu == kFirstGpu + 1 && place_of_pool(pool_at(99)).gpu == kFirstGpu);
    stocks[first].reserved = 32 * kMiB;
    REQUIRE(settle_pools(*membership) == Change::shrank && counts(64, 64));
    // Some have grown and some shrunk: they grew.
    stocks[first].reserved = 0;
    stocks[second].reserved = 96 * kMiB;
    REQUIRE(settle_pools(*membership) == Change::grew && counts(32, 96));
    // One that cannot be destroyed counts as before, and one that is leaves what was allocated from it.
    REQUIRE(destroy(second, CUDA_ERROR_INVALID_VALUE) && counts(32, 96));
    left_behind[second] = 16 * kMiB;
    REQUIRE(destroy(second) && counts(32, 16) && destroy(pool_at(77)));
    // One of host memory counts nowhere, whatever is current.
    CUmemoryPool host = pool_at(20);
    know_pool(host, Place{});
    stocks[host] = {0, 64 * kMiB};
    REQUIRE(!place_of_pool(host) && counts(32, 16) && destroy(host));
    // Another may have its handle.
    second = made(11, 0);
    stocks[second].reserved = 32 * kMiB;
    REQUIRE(counts(64, 16) && place_of_pool(second).gpu == kFirstGpu);
    left_behind.clear();
    REQUIRE(destroy(second) && destroy(first) && counts(32, 16));
    // A child has none.
    tell<AtFork>([](const AtFork& one) { one.in_child(); });
    counted.clear();
    REQUIRE(counts(0, 0));
    know_pools_of(place_of_device(0));
    REQUIRE(counts(32, 0));
}

// What is in stock: asked of the pool that is meant, trimmed on the GPU that is short.
void stock() {
    for (CUdevice device : {0, 1}) know_pools_of(place_of_device(device));
    CUmemoryPool other = made(10, 1);
    for (CUmemoryPool pool : {own_pool(0), own_pool(1), other}) stocks[pool].reserved = 64 * kMiB;
    stocks[other].used = 60 * kMiB;
    REQUIRE(fits_in_pool(other, place_of_device(1), 4 * kMiB) &&
            !fits_in_pool(other, place_of_device(1), 4 * kMiB + 1));
    REQUIRE(fits_in_pool(nullptr, place_of_device(1), 64 * kMiB));
    stocks[other].used = 65 * kMiB;  // not of one moment
    REQUIRE(!fits_in_pool(other, place_of_device(1), 1));
    stocks[other].used = 60 * kMiB;
    graph_reserved[0] = graph_reserved[1] = 32 * kMiB;
    REQUIRE(counts(96, 160));
    trim_pools(place_of_device(1));
    REQUIRE(trimmed == std::set<CUmemoryPool>({own_pool(1), other}) && graph_trimmed == std::set<CUdevice>{1});
    REQUIRE(counts(96, 60));
    // What was allocated is remembered with its pool, the device's own where none is named.
    note_pooled(other, place_of_device(1), 500, kMiB);
    note_pooled(nullptr, place_of_device(1), 600, kMiB);
    note_pooled(other, place_of_device(1), 0, kMiB);
    REQUIRE(remembered.size() == 2 && remembered[500] == other && remembered[600] == own_pool(1));
    // The end of a device's primary context: its pools are read again afterwards, the other's stay.
    for (int again = 0; again < 2; ++again) {
        graph_reserved[1] = 32 * kMiB;
        stocks[own_pool(1)].reserved = 16 * kMiB;
        REQUIRE(counts(96, 108));
        {
            EndingPools ending(1);
            REQUIRE(counted[kFirstGpu] == 96 * int64_t{kMiB} && counted[kFirstGpu + 1] == 60 * int64_t{kMiB});
            stocks[own_pool(1)].reserved = 8 * kMiB;
            graph_reserved[1] = 0;
        }
        REQUIRE(counts(96, 68));
    }
}

// A graph's memory is counted from its instantiation on, once for all graphs of a GPU.
void graphs() {
    for (CUdevice device : {0, 1}) know_pools_of(place_of_device(device));
    CUdevice device = 0;
    nodes = {{1, 60, 1},  {0, 0, 1},  {1, -60, 1}, {2, 50, 1}, {3, 20, 1},
             {2, -50, 1}, {9, -1, 1}, {3, -20, 1}, {1, 10, 1}};
    REQUIRE(graph_memory_of(nullptr, &device) == 70 * kMiB && device == 1);
    nodes.clear();
    REQUIRE(graph_memory_of(nullptr, &device) == 0);
    promise_graph_memory(exec_at(1), place_of_device(1), 64 * kMiB);
    promise_graph_memory(exec_at(2), place_of_device(1), 96 * kMiB);
    promise_graph_memory(exec_at(3), place_of_device(0), 32 * kMiB);
    REQUIRE(counts(32, 96) && graph_memory_counted(place_of_device(1)) == 96 * kMiB);
    graph_reserved[1] = 128 * kMiB;
    REQUIRE(graph_memory_counted(place_of_device(1)) == 128 * kMiB && counts(32, 128));
    graph_reserved[1] = 32 * kMiB;
    EndingGraphMemory(exec_at(2)).result(CUDA_ERROR_UNKNOWN);
    REQUIRE(counts(32, 96));
    {
        // The driver gives its handle to another thread's before it returns.
        EndingGraphMemory ending(exec_at(2));
        promise_graph_memory(exec_at(2), place_of_device(1), 80 * kMiB);
        REQUIRE(ending.result(CUDA_SUCCESS) == CUDA_SUCCESS && counts(32, 80));
    }
    EndingGraphMemory(exec_at(2)).result(CUDA_SUCCESS);
    REQUIRE(counts(32, 64));
    EndingGraphMemory(exec_at(2)).result(CUDA_SUCCESS);
    EndingGraphMemory(exec_at(1)).result(CUDA_SUCCESS);
    REQUIRE(counts(32, 32));
    EndingGraphMemory(exec_at(3)).result(CUDA_SUCCESS);
    REQUIRE(counts(0, 32));
    // An exec goes with its context, and nobody destroys it then.
    promise_graph_memory(exec_at(4), place_of_device(1), 64 * kMiB);
    current_one = context_at(2);
    promise_graph_memory(exec_at(5), place_of_device(1), 96 * kMiB);
    REQUIRE(counts(0, 96));
    context_ended(context_at(2));
    REQUIRE(counted[kFirstGpu + 1] == 64 * int64_t{kMiB});
    EndingGraphMemory(exec_at(4)).result(CUDA_SUCCESS);
    REQUIRE(counts(0, 32));
}

}  // namespace

int main(int argc, char** argv) {
    driver.cuCtxGetCurrent = get_current;
    driver.cuDeviceGetDefaultMemPool = driver.cuDeviceGetMemPool = default_pool;
    driver.cuMemPoolGetAttribute = attribute;
    driver.cuDeviceGetGraphMemAttribute = graph_attribute;
    driver.cuMemPoolTrimTo = trim;
    driver.cuDeviceGraphMemTrim = trim_graphs;
    driver.cuDeviceGetCount = device_count;
    driver.cuThreadExchangeStreamCaptureMode = exchange_mode;
    driver.cuGraphGetNodes = get_nodes;
    driver.cuGraphNodeGetType = type_of;
    driver.cuGraphMemAllocNodeGetParams = allocated_by;
    driver.cuGraphMemFreeNodeGetParams = freed_by;
    for (CUdevice device : {0, 1}) stocks[own_pool(device)] = {device};
    const char* name = argc > 1 ? argv[1] : "";
    if (!strcmp(name, "lives"))
        lives();
    else if (!strcmp(name, "stock"))
        stock();
    else if (!strcmp(name, "graphs"))
        graphs();
    else
        return 2;
    return 0;
}
