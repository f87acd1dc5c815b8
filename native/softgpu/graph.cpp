#include "softgpu/graph.h"

#include <algorithm>
#include <cstring>
#include <map>

namespace softgpu {
namespace {

Registry<Graph, CUgraph>& graphs() {
    static auto& registry = *new Registry<Graph, CUgraph>(4);
    return registry;
}

Registry<Node, CUgraphNode>& nodes() {
    static auto& registry = *new Registry<Node, CUgraphNode>(5);
    return registry;
}

GraphRef unpublished_graph() {
    auto graph = std::make_shared<Graph>();
    graph->handle = graphs().issue();
    return graph;
}

}  // namespace

std::mutex& graph_lock() {
    static auto& mutex = *new std::mutex;
    return mutex;
}

Graph::~Graph() {
    for (const NodeRef& node : nodes) {
        softgpu::nodes().remove(node->handle);
        node->graph = nullptr;
        node->after.clear();  // edges hold their nodes: cut them so that none keeps another alive
    }
}

CUgraphNodeType type_of(const NodeBody& body) {
    struct Type {
        CUgraphNodeType operator()(const EmptyNode&) { return CU_GRAPH_NODE_TYPE_EMPTY; }
        CUgraphNodeType operator()(const KernelNode&) { return CU_GRAPH_NODE_TYPE_KERNEL; }
        CUgraphNodeType operator()(const CopyNode&) { return CU_GRAPH_NODE_TYPE_MEMCPY; }
        CUgraphNodeType operator()(const MemsetNode&) { return CU_GRAPH_NODE_TYPE_MEMSET; }
        CUgraphNodeType operator()(const ChildNode& node) {
            return node.conditional ? CU_GRAPH_NODE_TYPE_CONDITIONAL : CU_GRAPH_NODE_TYPE_GRAPH;
        }
        CUgraphNodeType operator()(const ValueNode&) { return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP; }
        CUgraphNodeType operator()(const CapturedNode& node) { return node.operation.type; }
    };
    return std::visit(Type{}, body);
}

NodeBody node_from(const Operation& operation) {
    if (operation.node_params && operation.type == CU_GRAPH_NODE_TYPE_MEMCPY) {
        return CopyNode{*static_cast<const CUDA_MEMCPY3D*>(operation.node_params.get()), nullptr};
    }
    if (operation.node_params && operation.type == CU_GRAPH_NODE_TYPE_MEMSET) {
        return MemsetNode{*static_cast<const CUDA_MEMSET_NODE_PARAMS*>(operation.node_params.get()), nullptr};
    }
    return CapturedNode{operation};
}

GraphRef make_graph() {
    GraphRef graph = unpublished_graph();
    publish(graph);
    return graph;
}

void publish(const GraphRef& graph) {
    graphs().put(graph->handle, graph);
    for (const NodeRef& node : graph->nodes) {
        if (const auto* child = std::get_if<ChildNode>(&node->body)) publish(child->graph);
    }
}

GraphRef graph_from(CUgraph handle) { return graphs().find(handle); }

NodeRef node_from_handle(CUgraphNode handle) { return nodes().find(handle); }

NodeRef add_node(Graph& graph, NodeBody body, std::vector<Edge> after) {
    auto node = std::make_shared<Node>();
    node->handle = nodes().issue();
    node->graph = &graph;
    node->body = std::move(body);
    node->after = std::move(after);
    nodes().put(node->handle, node);
    graph.nodes.push_back(node);
    return node;
}

GraphRef copy_graph(const Graph& graph) {
    GraphRef copy = unpublished_graph();
    copy->origin = graph.handle;
    std::map<const Node*, NodeRef> twin;
    for (const NodeRef& node : graph.nodes) {
        NodeBody body = node->body;
        if (auto* child = std::get_if<ChildNode>(&body)) {
            child->graph = copy_graph(*child->graph);
            child->graph->owned = true;
        }
        const NodeRef added = add_node(*copy, std::move(body), {});
        added->origin = node->handle;
        added->attributes = node->attributes;
        twin[node.get()] = added;
    }
    for (const NodeRef& node : graph.nodes) {
        for (const Edge& edge : node->after) twin[node.get()]->after.push_back({twin[edge.from.get()], edge.data});
    }
    return copy;
}

bool cannot_be_cloned(const Graph& graph) {
    return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const NodeRef& node) {
        const auto updatable = node->attributes.find(CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE);
        if (updatable != node->attributes.end() && updatable->second.deviceUpdatableKernelNode.deviceUpdatable)
            return true;
        const auto* child = std::get_if<ChildNode>(&node->body);
        return child && (child->conditional || cannot_be_cloned(*child->graph));
    });
}

NodeRef find_copy(const Graph& copy, CUgraphNode original) {
    for (const NodeRef& node : copy.nodes) {
        if (node->origin == original) return node;
        if (const auto* child = std::get_if<ChildNode>(&node->body)) {
            if (NodeRef inner = find_copy(*child->graph, original)) return inner;
        }
    }
    return nullptr;
}

void remove_node(const NodeRef& node) {
    Graph& graph = *node->graph;
    for (const NodeRef& other : graph.nodes) {
        auto& after = other->after;
        after.erase(std::remove_if(after.begin(), after.end(), [&](const Edge& edge) { return edge.from == node; }),
                    after.end());
    }
    graph.nodes.erase(std::remove(graph.nodes.begin(), graph.nodes.end(), node), graph.nodes.end());
    node->graph = nullptr;
    node->after.clear();
    nodes().remove(node->handle);
    if (auto* child = std::get_if<ChildNode>(&node->body)) remove_graph(child->graph);
}

void remove_graph(const GraphRef& graph) {
    graphs().remove(graph->handle);
    for (const NodeRef& node : graph->nodes) {
        if (auto* child = std::get_if<ChildNode>(&node->body)) remove_graph(child->graph);
    }
}

std::vector<Edge> dependents(const Node& node) {
    std::vector<Edge> later;
    for (const NodeRef& other : node.graph->nodes) {
        for (const Edge& edge : other->after) {
            if (edge.from.get() == &node) later.push_back({other, edge.data});
        }
    }
    return later;
}

std::vector<NodeRef> in_order(const Graph& graph) {
    std::map<const Node*, size_t> waiting_for;
    std::map<const Node*, std::vector<NodeRef>> later;
    std::vector<NodeRef> order;
    for (const NodeRef& node : graph.nodes) {
        waiting_for[node.get()] = node->after.size();
        for (const Edge& edge : node->after) later[edge.from.get()].push_back(node);
        if (node->after.empty()) order.push_back(node);
    }
    for (size_t i = 0; i < order.size(); ++i) {
        for (const NodeRef& next : later[order[i].get()]) {
            if (--waiting_for[next.get()] == 0) order.push_back(next);
        }
    }
    return order.size() == graph.nodes.size() ? order : std::vector<NodeRef>{};
}

CUresult edges_from(const Graph& graph, const CUgraphNode* handles, const CUgraphEdgeData* data, size_t count,
                    std::vector<Edge>* out) {
    if (count > 0 && !handles) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; ++i) {
        const NodeRef node = node_from_handle(handles[i]);
        if (!node || node->graph != &graph) return CUDA_ERROR_INVALID_VALUE;
        const auto same = [&](const Edge& edge) { return edge.from == node; };
        if (std::any_of(out->begin(), out->end(), same)) return CUDA_ERROR_INVALID_VALUE;
        out->push_back({node, data ? data[i] : CUgraphEdgeData{}});
    }
    return CUDA_SUCCESS;
}

bool same_edge(const CUgraphEdgeData& a, const CUgraphEdgeData& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

}  // namespace softgpu
