// Graphs as callers build them or as captures leave them: nodes, what each does, and what it comes after.
#pragma once

#include <map>
#include <mutex>
#include <variant>

#include "softgpu/entry.h"
#include "softgpu/registry.h"

namespace softgpu {

struct Capture;
struct Launch;
using LaunchRef = std::shared_ptr<const Launch>;
struct Graph;
using GraphRef = std::shared_ptr<Graph>;
struct Node;
using NodeRef = std::shared_ptr<Node>;

struct KernelNode {
    LaunchRef launch;
};
struct CopyNode {
    CUDA_MEMCPY3D copy;
    CUcontext context;
};
struct MemsetNode {
    CUDA_MEMSET_NODE_PARAMS fill;
    CUcontext context;
};
struct ChildNode {
    GraphRef graph;
    // The body of a conditional node runs if the condition held when its graph was launched: kernels do not set it.
    bool conditional = false, runs = true;
    std::shared_ptr<CUgraph> handle_of_body = nullptr;  // the caller looks at it for as long as there is the node
};
struct EmptyNode {};
struct ValueNode {
    CUcontext context;
    std::vector<CUstreamBatchMemOpParams> operations;
    unsigned flags;
};
struct CapturedNode {  // an operation that graphs cannot be asked about
    Operation operation;
};
using NodeBody = std::variant<EmptyNode, KernelNode, CopyNode, MemsetNode, ChildNode, ValueNode, CapturedNode>;

// A dependency, seen from the node that comes later.
struct Edge {
    NodeRef from;
    CUgraphEdgeData data{};
};

struct Node {
    CUgraphNode handle = nullptr;
    CUgraphNode origin = nullptr;  // in a copy: the node it was made from
    Graph* graph = nullptr;        // null once its graph is gone
    NodeBody body;
    std::vector<Edge> after;
    std::map<int, CUkernelNodeAttrValue> attributes;
};

struct Graph {
    CUgraph handle = nullptr;
    bool owned = false;  // belongs to a child node: not to be destroyed by its handle
    CUgraph origin = nullptr;
    std::vector<NodeRef> nodes;  // in the order they were added

    Graph() = default;
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;
    ~Graph();
};

// Guards every graph and every capture. Held for bookkeeping only: nothing under it waits or calls out.
std::mutex& graph_lock();

CUgraphNodeType type_of(const NodeBody& body);
NodeBody node_from(const Operation& operation);

// All of these expect graph_lock() to be held.
GraphRef make_graph();
void publish(const GraphRef& graph);  // makes it and its child graphs known by their handles
GraphRef graph_from(CUgraph handle);
NodeRef node_from_handle(CUgraphNode handle);
NodeRef add_node(Graph& graph, NodeBody body, std::vector<Edge> after);
GraphRef copy_graph(const Graph& graph);                     // not published: it goes with its last reference
bool cannot_be_cloned(const Graph& graph);                   // by a caller; also for what is in child graphs
NodeRef find_copy(const Graph& copy, CUgraphNode original);  // also within child graphs
void remove_node(const NodeRef& node);
void remove_graph(const GraphRef& graph);
std::vector<Edge> dependents(const Node& node);  // `from` names the later node here
// Nodes so that each stands after what it depends on; empty if they run in a circle.
std::vector<NodeRef> in_order(const Graph& graph);
// The dependencies that a caller names; every node has to be one of `graph`, and named once.
CUresult edges_from(const Graph& graph, const CUgraphNode* handles, const CUgraphEdgeData* data, size_t count,
                    std::vector<Edge>* out);
bool same_edge(const CUgraphEdgeData& a, const CUgraphEdgeData& b);

}  // namespace softgpu
