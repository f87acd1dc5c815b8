// Executable graphs: a copy of a graph, laid out in lanes, that can be launched again and again.
#pragma once

#include "softgpu/context.h"
#include "softgpu/graph.h"

namespace softgpu {

// A node of the flattened graph: child graphs are dissolved into their nodes.
struct Planned {
    NodeRef node;
    std::vector<size_t> after;  // places in the plan, all before this one
    size_t lane = 0;            // lane 0 is the stream that it is launched into
    bool enabled = true;
    std::vector<Operation> steps;  // for the context it was last launched in; empty: nothing to run
};

struct GraphExec {
    CUgraphExec handle = nullptr;
    GraphRef graph;  // its own copy, known to no caller

    std::mutex mutex;  // guards the rest, and keeps launches apart
    std::vector<Planned> plan;
    size_t lanes = 0;
    std::weak_ptr<Context> context;  // where `queues` are open and `steps` are for
    std::vector<QueueId> queues;     // lane 1 and on
    OpId last = 0;                   // the end of the last launch
};
using GraphExecRef = std::shared_ptr<GraphExec>;

// Why a graph cannot be run, as cuGraphInstantiateWithParams wants to know it.
struct Refusal {
    CUgraphInstantiateResult reason = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    CUgraphNode node = nullptr;
};
CUresult instantiate(CUgraph graph, unsigned long long flags, CUgraphExec* out, Refusal* refusal);
CUresult launch(CUgraphExec exec, CUstream stream, DefaultStream which);
CUresult destroy_exec(CUgraphExec exec);
CUresult find_exec(CUgraphExec handle, GraphExecRef* out);

// Replaces what a node does: `node` is one of the graph that was instantiated. Same kind of work only.
CUresult set_node(GraphExec& exec, CUgraphNode node, NodeBody body);
CUresult set_enabled(GraphExec& exec, CUgraphNode node, bool enabled);
CUresult get_enabled(GraphExec& exec, CUgraphNode node, bool* enabled);
// Takes over all parameters of a graph of the same shape.
CUresult update(GraphExec& exec, CUgraph graph, CUgraphExecUpdateResultInfo* info);

}  // namespace softgpu
