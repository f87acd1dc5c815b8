#include "tenant/graphs.h"

#include <algorithm>
#include <new>

#include "admission/admission.h"
#include "tenant/context.h"
#include "tenant/context_end.h"
#include "tenant/fork.h"
#include "tenant/gate.h"
#include "tenant/graph_order.h"
#include "tenant/green_contexts.h"
#include "tenant/growing_array.h"
#include "tenant/locked.h"
#include "tenant/membership.h"
#include "tenant/uncovered.h"
#include "wire/border.h"

namespace tenant {

// A gate before a node with this number in the walk: between it and all that it waits for; or, where `ahead` is not 0,
// aside, behind the node that comes so many before it in a chain.
struct KeptGate {
    uint64_t place;
    uint32_t ahead;
};

// The graph inside a child graph node: its nodes have these numbers in the walk.
struct KeptChild {
    CUgraphNode node;  // of the clone
    uint64_t first, past;
};

// What is known of an exec that has gates.
struct KeptClone {
    Membership* membership;  // whose gates
    CUgraphExec exec;
    CUgraph clone;
    CUcontext context;  // of the gates, on this GPU of the segment
    int gpu;
    CUdeviceptr gate;
    uint32_t word;                 // of the progress words: 1 while it stands at one of its gates; 0: it has none
    CUdeviceptr word_place;        // where the GPU finds it
    GrowingArray<KeptGate> gates;  // in the walk's order
    GrowingArray<KeptChild> children;
    float piece;         // as Durations::begin_graph has it
    bool was_in_flight;  // once its exec has ended: when the last look at the streams began, it had ended already
    KeptClone* next;
};

namespace {

// What a kernel that was never timed is taken for. Too little puts the gates further apart than they should be, too
// much slows the graph down by gates.
constexpr float kAssumedUs = 10;
// A gate between two kernels costs a graph 6 us on an H200; aside, with so much to run meanwhile, 3. With more it would
// let through too much of what comes behind it. See docs/lab-notes.md, "Gates in graphs of small kernels".
constexpr float kAheadUs = 20, kMostAheadUs = 40;

Lock kept_lock{Rank::gated_graphs};
KeptClone* kept = nullptr;
// Those whose exec has ended, while a launch of it may be in flight: the driver lets that go on, through its gates.
KeptClone* in_flight = nullptr;

// The parent's graphs mean nothing to a forked child's driver.
void forget_in_child() {
    kept_lock.renew();
    kept = in_flight = nullptr;
}
LISTEN(AtFork, ForkStep::graphs, forget_in_child)

KeptClone** find_kept(CUgraphExec exec) {
    KeptClone** place = &kept;
    while (*place && (*place)->exec != exec) place = &(*place)->next;
    return place;
}

void keep(KeptClone* entry) {
    Locked locked(kept_lock);
    entry->next = kept;
    kept = entry;
}

void forget(KeptClone* entry) {
    if (Membership::current_if_joined()) entry->membership->progress.free_graph_word(entry->word);
    entry->gates.discard();
    entry->children.discard();
    delete entry;
}

void destroy(KeptClone* entry) {
    if (entry->clone) driver.cuGraphDestroy(entry->clone);
    forget(entry);
}

// Takes out those for which `is` holds.
template <class Is>
KeptClone* take_if(KeptClone** list, Is&& is) {
    KeptClone* taken = nullptr;
    for (KeptClone** place = list; KeptClone* one = *place;) {
        if (!is(*one)) {
            place = &one->next;
            continue;
        }
        *place = one->next;
        one->next = taken;
        taken = one;
    }
    return taken;
}

template <class End>
void for_all(KeptClone* list, End&& end) {
    while (KeptClone* one = list) {
        list = one->next;
        end(one);
    }
}

// With their gates, and whatever stands there. Where a primary context ends, the caller has the membership's lock,
// which the holder of this one may wait for: then they stay.
void forget_context(CUcontext context) {
    if (!kept_lock.try_lock()) return;
    auto is_its = [&](const KeptClone& one) { return owner_of(one.context) == context; };
    KeptClone *ended = take_if(&kept, is_its), *ended_in_flight = take_if(&in_flight, is_its);
    kept_lock.unlock();
    for_all(ended, destroy);
    for_all(ended_in_flight, forget);
}
LISTEN(AtContextEnd, ContextEndStep::graphs, forget_context)

bool is_of(const KeptClone& one, const Membership& membership, int gpu) {
    return one.membership == &membership && one.gpu == gpu;
}

bool may_be_in_flight(const KeptClone& one) {
    return one.word && Membership::current_if_joined() && one.membership->slot().gpus[one.gpu].busy.load();
}

// The exec has ended.
void end(KeptClone* entry) {
    if (!may_be_in_flight(*entry)) return destroy(entry);
    driver.cuGraphDestroy(entry->clone);
    Locked locked(kept_lock);
    entry->next = in_flight;
    in_flight = entry;
}

CUgraphNodeType type_of(CUgraphNode node) {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    return driver.cuGraphNodeGetType(node, &type) == CUDA_SUCCESS ? type : CU_GRAPH_NODE_TYPE_EMPTY;
}

// Null: no child graph node.
CUgraph child_of(CUgraphNode node) {
    CUgraph child = nullptr;
    if (type_of(node) != CU_GRAPH_NODE_TYPE_GRAPH) return nullptr;
    return driver.cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS ? child : nullptr;
}

// Most kernels of a graph have been launched before, when the program warmed up, and were timed then.
float kernel_us(const Durations& durations, CUgraphNode node) {
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

// Whether it is worth gates: more kernels than may go between two, child graphs included, or bodies of conditional
// nodes, which cannot be looked into.
bool is_long(CUgraph graph, const Durations& durations, float gate_every_us, float* us) {
    Nodes nodes(graph);
    for (size_t i = 0; i < nodes.count(); ++i) {
        CUgraphNodeType type = type_of(nodes[i]);
        CUgraph child = child_of(nodes[i]);
        if (type == CU_GRAPH_NODE_TYPE_KERNEL) *us += kernel_us(durations, nodes[i]);
        if (type == CU_GRAPH_NODE_TYPE_CONDITIONAL || *us > gate_every_us) return true;
        if (child && is_long(child, durations, gate_every_us, us)) return true;
    }
    return false;
}

// The one node that it waits for, if that is a kernel; null: none, or others too.
CUgraphNode kernel_before(CUgraphNode node) {
    size_t count = 0;
    if (driver.cuGraphNodeGetDependencies(node, nullptr, &count) != CUDA_SUCCESS || count != 1) return nullptr;
    CUgraphNode before = nullptr;
    if (driver.cuGraphNodeGetDependencies(node, &before, &count) != CUDA_SUCCESS) return nullptr;
    return type_of(before) == CU_GRAPH_NODE_TYPE_KERNEL ? before : nullptr;
}

// How far before the node its gate can stand aside; 0: nowhere.
uint32_t room_ahead(CUgraphNode node, const Durations& durations) {
    float us = 0;
    for (uint32_t ahead = 1; (node = kernel_before(node)); ++ahead) {
        if (us >= kAheadUs) return ahead;
        us += kernel_us(durations, node);
        if (us > kMostAheadUs) break;
    }
    return 0;
}

// Puts gates into a clone. It walks through all nodes, those of a child graph in place of its node.
class Gating {
 public:
    Gating(CUdeviceptr gate, CUdeviceptr word, CUcontext context) : gate_(gate), word_(word), context_(context) {}

    // Where kernels have added up to more than this since the last gate. One that stands aside stands sooner: it lets
    // through what it stands ahead of.
    bool by_time(CUgraph clone, const Durations& durations, float gate_every_us, KeptClone* entry) {
        float since_gate_us = 0, all_us = 0, squares = 0;
        children_ = &entry->children;
        bool done = walk(clone, true, [&](CUgraph graph, CUgraphNode node, bool outermost, uint64_t place) {
            if (type_of(node) != CU_GRAPH_NODE_TYPE_KERNEL) return true;
            float us = kernel_us(durations, node);
            all_us += us;
            since_gate_us += us;
            if (since_gate_us <= gate_every_us - kAheadUs) return true;
            uint32_t ahead = room_ahead(node, durations);
            if (ahead == 0 && since_gate_us <= gate_every_us) return true;
            if (!put_before(graph, node, outermost, ahead)) return true;
            squares += (since_gate_us - us) * (since_gate_us - us);
            since_gate_us = us;
            return entry->gates.add({place, ahead});
        });
        squares += since_gate_us * since_gate_us;
        if (all_us > 0) entry->piece = squares / (all_us * all_us);
        return done;
    }

    // Where another has them: all, or it is of no use.
    bool like(CUgraph clone, const KeptClone& other) { return like(clone, true, other.gates.data(), end_of(other)); }

    // The same, for what is inside one of its child graph nodes.
    bool like(CUgraph clone, const KeptClone& other, const KeptChild& child) {
        auto is_before = [](const KeptGate& gate, uint64_t place) { return gate.place < place; };
        const KeptGate* begin = std::lower_bound(other.gates.data(), end_of(other), child.first, is_before);
        place_ = child.first;
        return like(clone, false, begin, std::lower_bound(begin, end_of(other), child.past, is_before));
    }

 private:
    static const KeptGate* end_of(const KeptClone& kept) { return kept.gates.data() + kept.gates.count(); }

    bool like(CUgraph clone, bool outermost, const KeptGate* next, const KeptGate* end) {
        bool done = walk(clone, outermost, [&](CUgraph graph, CUgraphNode node, bool is_outermost, uint64_t place) {
            if (next == end || next->place != place) return true;
            return put_before(graph, node, is_outermost, next++->ahead);
        });
        return done && next == end;
    }

    template <class Visit>
    bool walk(CUgraph graph, bool outermost, Visit&& visit) {
        NodesInOrder nodes(graph);
        for (size_t i = 0; i < nodes.count(); ++i) {
            if (!visit(graph, nodes[i], outermost, place_++)) return false;
            CUgraph child = child_of(nodes[i]);
            if (!child) continue;
            uint64_t first = place_;
            if (!walk(child, false, visit)) return false;
            if (children_ && !children_->add({nodes[i], first, place_})) return false;
        }
        return true;
    }

    bool put_before(CUgraph graph, CUgraphNode node, bool outermost, uint32_t ahead) const {
        return ahead > 0 ? put_aside(graph, node, ahead) : put_between(graph, node, outermost);
    }

    // The node waits for it and for all that it waited for before.
    bool put_aside(CUgraph graph, CUgraphNode node, uint32_t ahead) const {
        CUgraphNode before = node, waiting = nullptr;
        for (uint32_t i = 0; i < ahead && before; ++i) before = kernel_before(before);
        return before && add_gate(graph, &before, 1, &waiting) &&
               driver.cuGraphAddDependencies(graph, &waiting, &node, 1) == CUDA_SUCCESS;
    }

    // Between the node and all its dependencies. A node without dependencies is held by the gate before the launch,
    // unless other nodes come before its whole graph.
    bool put_between(CUgraph graph, CUgraphNode node, bool outermost) const {
        size_t count = 0;
        if (driver.cuGraphNodeGetDependencies(node, nullptr, &count) != CUDA_SUCCESS) return false;
        if (count == 0 && outermost) return false;
        Array<CUgraphNode> before(count), same(count);
        if (before.size() != count || same.size() != count) return false;
        if (count > 0 && driver.cuGraphNodeGetDependencies(node, before.data(), &count) != CUDA_SUCCESS) return false;
        for (size_t i = 0; i < count; ++i) same[i] = node;

        CUgraphNode waiting = nullptr;
        CUgraphNode* all = count > 0 ? before.data() : nullptr;
        return add_gate(graph, all, count, &waiting) &&
               driver.cuGraphAddDependencies(graph, &waiting, &node, 1) == CUDA_SUCCESS &&
               (count == 0 || driver.cuGraphRemoveDependencies(graph, all, same.data(), count) == CUDA_SUCCESS);
    }

    bool add_gate(CUgraph graph, const CUgraphNode* before, size_t count, CUgraphNode* waiting) const {
        CUstreamBatchMemOpParams wait[3] = {write_value(word_, 1), wait_for_open(gate_), write_value(word_, 0)};
        CUDA_BATCH_MEM_OP_NODE_PARAMS operations{};
        operations.ctx = context_;
        operations.count = word_ ? 3 : 1;
        operations.paramArray = word_ ? wait : wait + 1;
        return driver.cuGraphAddBatchMemOpNode(waiting, graph, before, count, &operations) == CUDA_SUCCESS;
    }

    CUdeviceptr gate_, word_;
    CUcontext context_;
    uint64_t place_ = 0;
    GrowingArray<KeptChild>* children_ = nullptr;  // where the walk notes them
};

// The tenant, if it passes gates and its gate on the current context's GPU can be mapped.
Membership* gated_tenant(CUcontext* context, int* gpu, Membership::GatePlaces* places) {
    Membership* membership = Membership::of_thread(Membership::current());
    if (!membership || !(*context = current_context())) return nullptr;
    uint32_t rule = membership->segment().header.knobs.rule.load();
    if (!admission::is_gated(rule, membership->slot().tenant_class.load())) return nullptr;
    if (membership->is_lane() && !Membership::standing_places.any()) return nullptr;
    *gpu = membership->gpu_of(*context);
    if (*gpu < 0) return nullptr;
    *places = membership->gate_places(*context, *gpu);
    return places->gate ? membership : nullptr;
}

CUdeviceptr place_of(uint32_t word, CUdeviceptr words) { return word && words ? words + word * sizeof(uint32_t) : 0; }

// Where the gates are now. A context that is not current may be gone, and is not asked.
Gating gating_now(const KeptClone& kept) {
    bool is_there = Membership::current_if_joined() && current_context() == kept.context;
    Membership::GatePlaces now =
        is_there ? kept.membership->gate_places(kept.context, kept.gpu) : Membership::GatePlaces{};
    bool has_moved = now.gate && (!kept.word_place || now.words);
    if (!has_moved) return {kept.gate, kept.word_place, kept.context};
    // As many operations as it was instantiated with.
    return {now.gate, kept.word_place ? place_of(kept.word, now.words) : 0, kept.context};
}

// The one of `graph` whose copy in `clone` is this node, also in child graphs.
CUgraphNode find_original(CUgraph graph, CUgraph clone, CUgraphNode wanted) {
    Nodes nodes(graph);
    for (size_t i = 0; i < nodes.count(); ++i) {
        CUgraphNode cloned = nullptr;
        if (driver.cuGraphNodeFindInClone(&cloned, nodes[i], clone) != CUDA_SUCCESS) continue;
        if (cloned == wanted) return nodes[i];
        CUgraph child = child_of(nodes[i]), child_clone = child_of(cloned);
        if (!child || !child_clone) continue;
        if (CUgraphNode found = find_original(child, child_clone, wanted)) return found;
    }
    return nullptr;
}

// The other way round.
CUgraphNode find_clone(CUgraph clone, CUgraphNode original) {
    CUgraphNode cloned = nullptr;
    if (driver.cuGraphNodeFindInClone(&cloned, original, clone) == CUDA_SUCCESS) return cloned;
    Nodes nodes(clone);
    for (size_t i = 0; i < nodes.count() && !cloned; ++i)
        if (CUgraph child = child_of(nodes[i])) cloned = find_clone(child, original);
    return cloned;
}

}  // namespace

GatedGraph::GatedGraph(CUgraph graph) : graph_(graph) {
    CUcontext context = nullptr;
    int gpu = -1;
    Membership::GatePlaces places{};
    Membership* membership = gated_tenant(&context, &gpu, &places);
    if (!membership) return;
    float gate_every_us = static_cast<float>(wire::gate_every_us(membership->segment().header.knobs));
    float us = 0;
    is_long_ = is_long(graph, membership->durations, gate_every_us, &us);
    if (!is_long_) return;
    entry_ = new (std::nothrow)
        KeptClone{membership, nullptr, nullptr, context, gpu, places.gate, 0, 0, {}, {}, 1, false, nullptr};
    if (entry_) entry_->word = membership->progress.take_graph_word();
    if (entry_) entry_->word_place = place_of(entry_->word, places.words);
    if (!entry_) return;
    clone_if([&] {
        Gating gating(places.gate, entry_->word_place, context);
        return gating.by_time(clone_, membership->durations, gate_every_us, entry_) && entry_->gates.count() > 0;
    });
}

GatedGraph::GatedGraph(CUgraph graph, CUgraphExec exec) : graph_(graph) {
    Locked locked(kept_lock);
    if (KeptClone* found = *find_kept(exec)) clone_if([&] { return gating_now(*found).like(clone_, *found); });
}

GatedGraph::GatedGraph(CUgraph child, CUgraphExec exec, CUgraphNode node) : graph_(child) {
    Locked locked(kept_lock);
    KeptClone* found = *find_kept(exec);
    if (!found) return;
    for (const KeptChild& one : found->children)
        if (one.node == node) clone_if([&] { return gating_now(*found).like(clone_, *found, one); });
}

template <class Gate>
void GatedGraph::clone_if(Gate&& gate) {
    if (driver.cuGraphClone(&clone_, graph_) != CUDA_SUCCESS) {
        clone_ = nullptr;
    } else if (!gate()) {
        driver.cuGraphDestroy(clone_);
        clone_ = nullptr;
    }
}

GatedGraph::~GatedGraph() {
    if (clone_) driver.cuGraphDestroy(clone_);
    if (entry_) destroy(entry_);
}

void GatedGraph::keep_for(CUgraphExec exec) {
    if (Membership::current_if_joined()) {
        Membership* membership = entry_->membership;
        membership->slot().gpus[entry_->gpu].figures.gates.fetch_add(entry_->gates.count(), std::memory_order_relaxed);
        membership->durations.begin_graph(graph_shape(exec), entry_->piece);
    }
    entry_->exec = exec;
    entry_->clone = clone_;
    clone_ = nullptr;
    keep(entry_);
    entry_ = nullptr;
}

void GatedGraph::note_ungated(CUgraphExec exec) const {
    if (Membership* membership = Membership::of_thread(Membership::current_if_joined()))
        membership->durations.begin_graph(graph_shape(exec), 1);
    if (is_long_) count(Uncovered::ungated_graph);
}

CUgraphNode GatedGraph::original_of(CUgraphNode node) const {
    if (!node) return nullptr;
    if (CUgraphNode original = find_original(graph_, clone_, node)) return original;
    // A gate has the edges of the one node behind it.
    CUgraphNode behind = nullptr;
    size_t count = 1;
    if (driver.cuGraphNodeGetDependentNodes(node, &behind, &count) != CUDA_SUCCESS || count != 1) return nullptr;
    return find_original(graph_, clone_, behind);
}

CUgraphNode node_in_exec(CUgraphExec exec, CUgraphNode node) {
    Locked locked(kept_lock);
    KeptClone* found = *find_kept(exec);
    CUgraphNode cloned = found ? find_clone(found->clone, node) : nullptr;
    return cloned ? cloned : node;
}

void forget_exec(CUgraphExec exec) { EndingExec(exec).result(CUDA_SUCCESS); }

EndingExec::EndingExec(CUgraphExec exec) {
    Locked locked(kept_lock);
    KeptClone** place = find_kept(exec);
    kept_ = *place;
    if (kept_) *place = kept_->next;
}

CUresult EndingExec::result(CUresult result) {
    if (!kept_) return result;
    if (result == CUDA_SUCCESS)
        end(kept_);
    else
        keep(kept_);
    return result;
}

int standing_graphs(const Membership& membership, int gpu) {
    // Not waited for: its holder may be in the driver.
    if (!kept_lock.try_lock()) return 0;
    int standing = 0;
    auto stands = [&](const KeptClone& one) {
        return is_of(one, membership, gpu) && one.word && membership.progress.graph_stands(one.word);
    };
    for (const KeptClone* one = kept; one; one = one->next) standing += stands(*one);
    for (KeptClone* one = in_flight; one; one = one->next) {
        standing += stands(*one);
        one->was_in_flight = true;
    }
    kept_lock.unlock();
    return standing;
}

void forget_what_was_in_flight(const Membership& membership, int gpu) {
    if (!kept_lock.try_lock()) return;
    KeptClone* over =
        take_if(&in_flight, [&](const KeptClone& one) { return one.was_in_flight && is_of(one, membership, gpu); });
    kept_lock.unlock();
    for_all(over, forget);
}

Membership* gates_in(CUgraphExec exec) {
    Locked locked(kept_lock);
    KeptClone* found = *find_kept(exec);
    return found ? found->membership : nullptr;
}

}  // namespace tenant
