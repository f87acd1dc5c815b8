// cuGraph*: graphs as a whole, their nodes and edges. What nodes do is in graph_nodes.cpp.
#include <algorithm>
#include <fstream>

#include "softgpu/graph.h"
#include "softgpu/user_object.h"

namespace softgpu {
namespace {

using Lock = std::lock_guard<std::mutex>;

CUresult destroy_graph(CUgraph handle) {
    GraphRef graph;  // destroyed without the lock
    std::map<CUuserObject, unsigned> kept;
    {
        const Lock lock(graph_lock());
        graph = graph_from(handle);
        if (!graph || graph->owned) return CUDA_ERROR_INVALID_VALUE;
        remove_graph(graph);
        kept.swap(graph->kept);
    }
    for (const auto& [object, count] : kept) release_user_object(object, count);
    return CUDA_SUCCESS;
}

CUresult clone(CUgraph* out, CUgraph handle) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    const Lock lock(graph_lock());
    const GraphRef graph = graph_from(handle);
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    if (cannot_be_cloned(*graph)) return CUDA_ERROR_NOT_SUPPORTED;
    const GraphRef copy = copy_graph(*graph);
    for (const auto& [object, count] : copy->kept) TRY(retain_user_object(object, count));
    publish(copy);
    *out = copy->handle;
    return CUDA_SUCCESS;
}

// The driver's way with lists: without an array the count is asked for; with one, what is beyond the end is null.
template <class Item, class Fill>
CUresult answer(size_t* room, size_t have, Item* array, Fill&& fill) {
    if (!room) return CUDA_ERROR_INVALID_VALUE;
    if (!array) {
        *room = have;
        return CUDA_SUCCESS;
    }
    for (size_t i = 0; i < *room; ++i) fill(i, i < have);
    *room = std::min(*room, have);
    return CUDA_SUCCESS;
}

CUresult list_nodes(CUgraph handle, CUgraphNode* out, size_t* count, bool roots_only) {
    const Lock lock(graph_lock());
    const GraphRef graph = graph_from(handle);
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    std::vector<CUgraphNode> found;
    for (const NodeRef& node : graph->nodes) {
        if (!roots_only || node->after.empty()) found.push_back(node->handle);
    }
    return answer(count, found.size(), out, [&](size_t i, bool there) { out[i] = there ? found[i] : nullptr; });
}

struct EdgeOut {
    CUgraphNode* from;
    CUgraphNode* to;
    CUgraphEdgeData* data;
    bool has_data;  // the version of the call that can show what kind of edge it is
};

struct NamedEdge {
    CUgraphNode from, to;
    CUgraphEdgeData data;
};

CUresult list_edges(const std::vector<NamedEdge>& edges, const EdgeOut& out, size_t* count) {
    CUgraphNode* any = out.from ? out.from : out.to;
    const auto plain = [](const NamedEdge& edge) { return same_edge(edge.data, CUgraphEdgeData{}); };
    if (any && !(out.has_data && out.data) && !std::all_of(edges.begin(), edges.end(), plain)) {
        return CUDA_ERROR_LOSSY_QUERY;
    }
    return answer(count, edges.size(), any, [&](size_t i, bool there) {
        const NamedEdge edge = there ? edges[i] : NamedEdge{};
        if (out.from) out.from[i] = edge.from;
        if (out.to) out.to[i] = edge.to;
        if (out.data) out.data[i] = edge.data;
    });
}

CUresult edges_of_graph(CUgraph handle, const EdgeOut& out, size_t* count) {
    if ((out.from == nullptr) != (out.to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
    const Lock lock(graph_lock());
    const GraphRef graph = graph_from(handle);
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    std::vector<NamedEdge> edges;
    for (const NodeRef& node : graph->nodes) {
        for (const Edge& edge : node->after) edges.push_back({edge.from->handle, node->handle, edge.data});
    }
    return list_edges(edges, out, count);
}

CUresult edges_before(CUgraphNode handle, const EdgeOut& out, size_t* count) {
    const Lock lock(graph_lock());
    const NodeRef node = node_from_handle(handle);
    if (!node) return CUDA_ERROR_INVALID_VALUE;
    std::vector<NamedEdge> edges;
    for (const Edge& edge : node->after) edges.push_back({edge.from->handle, node->handle, edge.data});
    return list_edges(edges, out, count);
}

CUresult edges_behind(CUgraphNode handle, const EdgeOut& out, size_t* count) {
    const Lock lock(graph_lock());
    const NodeRef node = node_from_handle(handle);
    if (!node) return CUDA_ERROR_INVALID_VALUE;
    std::vector<NamedEdge> edges;
    for (const Edge& edge : dependents(*node)) edges.push_back({node->handle, edge.from->handle, edge.data});
    return list_edges(edges, out, count);
}

// All the edges or none. A circle is not looked for: it is found when the graph is instantiated.
CUresult change_edges(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to, const CUgraphEdgeData* data,
                      size_t count, bool add) {
    if (count > 0 && (!from || !to)) return CUDA_ERROR_INVALID_VALUE;
    const Lock lock(graph_lock());
    const GraphRef graph = graph_from(handle);
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    std::vector<std::pair<NodeRef, NodeRef>> pairs;
    for (size_t i = 0; i < count; ++i) {
        const NodeRef earlier = node_from_handle(from[i]), later = node_from_handle(to[i]);
        if (!earlier || !later || earlier == later) return CUDA_ERROR_INVALID_VALUE;
        if (earlier->graph != graph.get() || later->graph != graph.get()) return CUDA_ERROR_INVALID_VALUE;
        const auto same = [&](const Edge& edge) { return edge.from == earlier; };
        const bool there = std::any_of(later->after.begin(), later->after.end(), same);
        if (there == add) return CUDA_ERROR_INVALID_VALUE;
        pairs.emplace_back(earlier, later);
    }
    for (size_t i = 0; i < count; ++i) {
        const auto& [earlier, later] = pairs[i];
        if (add) {
            later->after.push_back({earlier, data ? data[i] : CUgraphEdgeData{}});
            continue;
        }
        auto& after = later->after;
        after.erase(std::remove_if(after.begin(), after.end(),
                                   [edge_from = earlier](const Edge& edge) { return edge.from == edge_from; }),
                    after.end());
    }
    return CUDA_SUCCESS;
}

const char* type_name(CUgraphNodeType type) {
    switch (type) {
        case CU_GRAPH_NODE_TYPE_KERNEL:
            return "KERNEL";
        case CU_GRAPH_NODE_TYPE_MEMCPY:
            return "MEMCPY";
        case CU_GRAPH_NODE_TYPE_MEMSET:
            return "MEMSET";
        case CU_GRAPH_NODE_TYPE_HOST:
            return "HOST";
        case CU_GRAPH_NODE_TYPE_GRAPH:
            return "GRAPH";
        case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
            return "EVENT_WAIT";
        case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
            return "EVENT_RECORD";
        case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
            return "MEM_ALLOC";
        case CU_GRAPH_NODE_TYPE_MEM_FREE:
            return "MEM_FREE";
        case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
            return "BATCH_MEM_OP";
        default:
            return "EMPTY";
    }
}

void draw(const Graph& graph, std::ostream& out) {
    const auto name = [](const Node& node) {
        return "\"graph_" + std::to_string(node.graph->id) + "_node_" + std::to_string(node.local_id) + "\"";
    };
    out << "subgraph cluster_" << graph.id << " {\nlabel=\"graph_" << graph.id << "\"\n";
    for (const NodeRef& node : graph.nodes) {
        out << name(*node) << " [label=\"" << node->local_id << "\\n" << type_name(type_of(node->body)) << "\"];\n";
        if (const auto* child = std::get_if<ChildNode>(&node->body)) draw(*child->graph, out);
    }
    for (const NodeRef& node : graph.nodes) {
        for (const Edge& edge : node->after) out << name(*edge.from) << " -> " << name(*node) << ";\n";
    }
    out << "}\n";
}

CUresult print_dot(CUgraph handle, const char* path) {
    if (!path) return CUDA_ERROR_INVALID_VALUE;
    const Lock lock(graph_lock());
    const GraphRef graph = graph_from(handle);
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    std::ofstream file(path);
    file << "digraph dot {\n";
    draw(*graph, file);
    file << "}\n";
    file.close();
    return file ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

// Reads something off a node.
template <class Answer, class Read>
CUresult ask(CUgraphNode handle, Answer* out, Read&& read) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    const Lock lock(graph_lock());
    const NodeRef node = node_from_handle(handle);
    if (!node) return CUDA_ERROR_INVALID_VALUE;
    *out = read(*node);
    return CUDA_SUCCESS;
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

DRIVER_API cuGraphCreate(CUgraph* out, unsigned int flags) {
    return entry([&] {
        if (!out || flags != 0) return CUDA_ERROR_INVALID_VALUE;
        const Lock lock(graph_lock());
        *out = make_graph()->handle;
        return CUDA_SUCCESS;
    });
}
DRIVER_API cuGraphDestroy(CUgraph graph) {
    return entry([&] { return destroy_graph(graph); });
}
DRIVER_API cuGraphClone(CUgraph* out, CUgraph graph) {
    return entry([&] { return clone(out, graph); });
}
DRIVER_API cuGraphNodeFindInClone(CUgraphNode* out, CUgraphNode original, CUgraph handle) {
    return entry([&] {
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        const Lock lock(graph_lock());
        const GraphRef copy = graph_from(handle);
        if (!copy) return CUDA_ERROR_INVALID_VALUE;
        // Among its own nodes only: what is in a child graph is found in the copy of that.
        for (const NodeRef& node : copy->nodes) {
            if (node->origin != original) continue;
            *out = node->handle;
            return CUDA_SUCCESS;
        }
        return CUDA_ERROR_INVALID_VALUE;
    });
}
DRIVER_API cuGraphDestroyNode(CUgraphNode handle) {
    return entry([&] {
        NodeRef node;
        const Lock lock(graph_lock());
        node = node_from_handle(handle);
        if (!node) return CUDA_ERROR_INVALID_VALUE;
        const CUgraphNodeType type = type_of(node->body);
        if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE)
            return CUDA_ERROR_NOT_SUPPORTED;
        remove_node(node);
        return CUDA_SUCCESS;
    });
}
DRIVER_API cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* type) {
    return entry([&] { return ask(handle, type, [](const Node& node) { return type_of(node.body); }); });
}
DRIVER_API cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
    return entry([&] { return list_nodes(graph, nodes, count, false); });
}
DRIVER_API cuGraphGetRootNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
    return entry([&] { return list_nodes(graph, nodes, count, true); });
}
DRIVER_API cuGraphGetEdges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, size_t* count) {
    return entry([&] { return edges_of_graph(graph, {from, to, nullptr, false}, count); });
}
DRIVER_API cuGraphGetEdges_v2(CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data, size_t* count) {
    return entry([&] { return edges_of_graph(graph, {from, to, data, true}, count); });
}
DRIVER_API cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode* nodes, size_t* count) {
    return entry([&] { return edges_before(node, {nodes, nullptr, nullptr, false}, count); });
}
DRIVER_API cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode* nodes, CUgraphEdgeData* data, size_t* count) {
    return entry([&] { return edges_before(node, {nodes, nullptr, data, true}, count); });
}
DRIVER_API cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode* nodes, size_t* count) {
    return entry([&] { return edges_behind(node, {nullptr, nodes, nullptr, false}, count); });
}
DRIVER_API cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode* nodes, CUgraphEdgeData* data, size_t* count) {
    return entry([&] { return edges_behind(node, {nullptr, nodes, data, true}, count); });
}
DRIVER_API cuGraphAddDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count) {
    return entry([&] { return change_edges(graph, from, to, nullptr, count, true); });
}
DRIVER_API cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                     const CUgraphEdgeData* data, size_t count) {
    return entry([&] { return change_edges(graph, from, to, data, count, true); });
}
DRIVER_API cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count) {
    return entry([&] { return change_edges(graph, from, to, nullptr, count, false); });
}
DRIVER_API cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                        const CUgraphEdgeData* data, size_t count) {
    return entry([&] { return change_edges(graph, from, to, data, count, false); });
}
DRIVER_API cuGraphDebugDotPrint(CUgraph graph, const char* path, unsigned int) {
    return entry([&] { return print_dot(graph, path); });
}
