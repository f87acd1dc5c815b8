#include "tenant/graphs.h"

#include <cstdlib>
#include <new>

#include "admission/admission.h"
#include "tenant/context.h"
#include "tenant/gate.h"
#include "tenant/locked.h"
#include "tenant/membership.h"

namespace tenant {

namespace {

// What a kernel that was never timed is taken for. Too little puts the gates further apart than they should be, too
// much slows the graph down: a gate costs it about 2 us.
constexpr float kAssumedUs = 10;

struct KeptClone {
    CUgraphExec exec;
    CUgraph clone;
    uint64_t* places;
    uint32_t place_count;
    KeptClone* next;
};

pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;
KeptClone* kept = nullptr;

KeptClone** find_kept(CUgraphExec exec) {
    KeptClone** place = &kept;
    while (*place && (*place)->exec != exec) place = &(*place)->next;
    return place;
}

// Memory of plain things that may not be had: then its size is 0.
template <class T>
class Array {
 public:
    explicit Array(size_t size) : items_(static_cast<T*>(calloc(size, sizeof(T)))), size_(items_ ? size : 0) {}
    ~Array() { free(items_); }
    Array(const Array&) = delete;
    Array& operator=(const Array&) = delete;

    T* data() { return items_; }
    size_t size() const { return size_; }
    T& operator[](size_t i) { return items_[i]; }
    T* give() {
        T* items = items_;
        items_ = nullptr;
        return items;
    }

 private:
    T* items_;
    size_t size_;
};

// How long a kernel node will run; negative: it is no kernel. Most kernels of a graph have been launched before, when
// the program warmed up, and were timed then.
float kernel_us(const Durations& durations, CUgraphNode node) {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    if (driver.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS || type != CU_GRAPH_NODE_TYPE_KERNEL) return -1;
    CUDA_KERNEL_NODE_PARAMS kernel{};
    if (driver.cuGraphKernelNodeGetParams_v2(node, &kernel) != CUDA_SUCCESS) return kAssumedUs;
    const unsigned int grid[3] = {kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ};
    const unsigned int block[3] = {kernel.blockDimX, kernel.blockDimY, kernel.blockDimZ};
    for (const void* function : {static_cast<const void*>(kernel.func), static_cast<const void*>(kernel.kern)}) {
        float us = durations.estimate(kernel_shape(function, grid, block, kernel.sharedMemBytes));
        if (function && us >= 0) return us;
    }
    return kAssumedUs;
}

// Between the node and all it waits for. A node that waits for nothing is held by the gate before the launch.
bool put_gate_before(CUgraph graph, CUgraphNode node, CUdeviceptr gate, CUcontext context) {
    size_t count = 0;
    if (driver.cuGraphNodeGetDependencies(node, nullptr, &count) != CUDA_SUCCESS || count == 0) return false;
    Array<CUgraphNode> before(count), same(count);
    if (before.size() != count || same.size() != count ||
        driver.cuGraphNodeGetDependencies(node, before.data(), &count) != CUDA_SUCCESS)
        return false;
    for (size_t i = 0; i < count; ++i) same[i] = node;

    CUstreamBatchMemOpParams wait = wait_for_open(gate);
    CUDA_BATCH_MEM_OP_NODE_PARAMS operations{};
    operations.ctx = context;
    operations.count = 1;
    operations.paramArray = &wait;
    CUgraphNode waiting = nullptr;
    return driver.cuGraphAddBatchMemOpNode(&waiting, graph, before.data(), count, &operations) == CUDA_SUCCESS &&
           driver.cuGraphAddDependencies(graph, &waiting, &node, 1) == CUDA_SUCCESS &&
           driver.cuGraphRemoveDependencies(graph, before.data(), same.data(), count) == CUDA_SUCCESS;
}

// The tenant, if it passes gates and its gate on the current context's GPU can be mapped.
Membership* gated_tenant(CUcontext* context, CUdeviceptr* gate, wire::Figures** figures) {
    Membership* membership = Membership::current();
    if (!membership || !(*context = current_context())) return nullptr;
    uint32_t rule = membership->segment().header.knobs.rule.load();
    if (!admission::is_gated(rule, membership->slot().tenant_class.load())) return nullptr;
    int gpu = membership->gpu_of(*context);
    if (gpu < 0 || !(*gate = membership->gate_address(gpu))) return nullptr;
    *figures = &membership->slot().gpus[gpu].figures;
    return membership;
}

}  // namespace

GatedGraph::GatedGraph(CUgraph graph) : graph_(graph) { make(nullptr, 0); }

GatedGraph::GatedGraph(CUgraph graph, CUgraphExec exec) : graph_(graph) {
    Locked locked(kept_lock);
    if (KeptClone* found = *find_kept(exec)) make(found->places, found->place_count);
}

GatedGraph::~GatedGraph() {
    if (clone_) driver.cuGraphDestroy(clone_);
    free(places_);
}

void GatedGraph::make(const uint64_t* places, uint32_t place_count) {
    CUcontext context = nullptr;
    CUdeviceptr gate = 0;
    wire::Figures* figures = nullptr;
    Membership* membership = gated_tenant(&context, &gate, &figures);
    size_t count = 0;
    if (!membership || driver.cuGraphGetNodes(graph_, nullptr, &count) != CUDA_SUCCESS || count < 2) return;
    float gate_every_us = static_cast<float>(membership->segment().header.knobs.gate_every_us.load());
    if (driver.cuGraphClone(&clone_, graph_) != CUDA_SUCCESS) {
        clone_ = nullptr;
        return;
    }
    Array<CUgraphNode> nodes(count);
    Array<uint64_t> gated(count);
    bool whole = nodes.size() == count && gated.size() == count &&
                 driver.cuGraphGetNodes(clone_, nodes.data(), &count) == CUDA_SUCCESS;
    float since_gate_us = 0;
    for (uint64_t i = 0, next = 0; whole && i < count; ++i) {
        bool here = false;
        if (places) {
            here = next < place_count && places[next] == i;
            next += here;
        } else if (float us = kernel_us(membership->durations, nodes[i]); us >= 0) {
            here = since_gate_us + us > gate_every_us;
            since_gate_us = here ? us : since_gate_us + us;
        }
        if (!here) continue;
        if (put_gate_before(clone_, nodes[i], gate, context))
            gated[place_count_++] = i;
        else
            whole = places == nullptr;  // an update must have every gate that its exec has
    }
    places_ = gated.give();
    if (whole && place_count_ > 0) {
        figures->gates.fetch_add(place_count_, std::memory_order_relaxed);
        return;
    }
    driver.cuGraphDestroy(clone_);
    clone_ = nullptr;
}

void GatedGraph::keep_for(CUgraphExec exec) {
    auto* entry = new (std::nothrow) KeptClone{exec, clone_, places_, place_count_, nullptr};
    if (!entry) return;  // node calls on this exec will name a node it does not know, and fail cleanly
    clone_ = nullptr;
    places_ = nullptr;
    Locked locked(kept_lock);
    entry->next = kept;
    kept = entry;
}

CUgraphNode GatedGraph::original_of(CUgraphNode node) const {
    size_t count = 0;
    if (!node || driver.cuGraphGetNodes(graph_, nullptr, &count) != CUDA_SUCCESS) return node;
    Array<CUgraphNode> nodes(count);
    if (driver.cuGraphGetNodes(graph_, nodes.data(), &count) != CUDA_SUCCESS) return node;
    for (size_t i = 0; i < nodes.size(); ++i) {
        CUgraphNode cloned = nullptr;
        if (driver.cuGraphNodeFindInClone(&cloned, nodes[i], clone_) == CUDA_SUCCESS && cloned == node) return nodes[i];
    }
    return nullptr;
}

CUgraphNode node_in_exec(CUgraphExec exec, CUgraphNode node) {
    Locked locked(kept_lock);
    KeptClone* found = *find_kept(exec);
    CUgraphNode cloned = nullptr;
    if (!found || driver.cuGraphNodeFindInClone(&cloned, node, found->clone) != CUDA_SUCCESS) return node;
    return cloned;
}

void forget_exec(CUgraphExec exec) {
    Locked locked(kept_lock);
    KeptClone** place = find_kept(exec);
    KeptClone* found = *place;
    if (!found) return;
    *place = found->next;
    driver.cuGraphDestroy(found->clone);
    free(found->places);
    delete found;
}

// The parent's graphs mean nothing to a forked child's driver.
void forget_execs_in_child() {
    pthread_mutex_init(&kept_lock, nullptr);
    kept = nullptr;
}

}  // namespace tenant
