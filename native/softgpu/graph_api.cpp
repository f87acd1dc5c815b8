// cuGraph*: graphs as a whole, their nodes and edges. What nodes do is in graph_nodes.cpp.
#include <algorithm>

#include "softgpu/graph.h"

namespace softgpu {
namespace {

using Lock = std::lock_guard<std::mutex>;

CUresult destroy_graph(CUgraph handle) {
    GraphRef graph;  // destroyed without the lock
    const Lock lock(graph_lock());
    graph = graph_from(handle);
    if (!graph || graph->owned) return CUDA_ERROR_INVALID_VALUE;
    remove_graph(graph);
    return CUDA_SUCCESS;
}

CUresult clone(CUgraph* out, CUgraph handle) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    const Lock lock(graph_lock());
    const GraphRef graph = graph_from(handle);
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    if (cannot_be_cloned(*graph)) return CUDA_ERROR_NOT_SUPPORTED;
    const GraphRef copy = copy_graph(*graph);
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

CUresult list_nodes(CUgraph handle, CUgraphNode* out, size_t* count) {
    const Lock lock(graph_lock());
    const GraphRef graph = graph_from(handle);
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    const auto handle_at = [&](size_t i) { return graph->nodes[i]->handle; };
    return answer(count, graph->nodes.size(), out,
                  [&](size_t i, bool there) { out[i] = there ? handle_at(i) : nullptr; });
}

// The nodes at the other ends of a node's edges, and what kind of edge each is. The version of the call that cannot
// show that answers only where all are plain.
CUresult list_neighbours(const std::vector<Edge>& edges, CUgraphNode* nodes, CUgraphEdgeData* data, size_t* count) {
    const auto plain = [](const Edge& edge) { return same_edge(edge.data, CUgraphEdgeData{}); };
    if (nodes && !data && !std::all_of(edges.begin(), edges.end(), plain)) return CUDA_ERROR_LOSSY_QUERY;
    return answer(count, edges.size(), nodes, [&](size_t i, bool there) {
        nodes[i] = there ? edges[i].from->handle : nullptr;
        if (data) data[i] = there ? edges[i].data : CUgraphEdgeData{};
    });
}

CUresult nodes_before(CUgraphNode handle, CUgraphNode* nodes, CUgraphEdgeData* data, size_t* count) {
    const Lock lock(graph_lock());
    const NodeRef node = node_from_handle(handle);
    return node ? list_neighbours(node->after, nodes, data, count) : CUDA_ERROR_INVALID_VALUE;
}

CUresult nodes_behind(CUgraphNode handle, CUgraphNode* nodes, size_t* count) {
    const Lock lock(graph_lock());
    const NodeRef node = node_from_handle(handle);
    return node ? list_neighbours(dependents(*node), nodes, nullptr, count) : CUDA_ERROR_INVALID_VALUE;
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
ENTRY(cuGraphDestroy, (CUgraph graph), destroy_graph(graph))
ENTRY(cuGraphClone, (CUgraph * out, CUgraph graph), clone(out, graph))
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
ENTRY(cuGraphNodeGetType, (CUgraphNode handle, CUgraphNodeType* type),
      ask(handle, type, [](const Node& node) { return type_of(node.body); }))
ENTRY(cuGraphGetNodes, (CUgraph graph, CUgraphNode* nodes, size_t* count), list_nodes(graph, nodes, count))
ENTRY(cuGraphNodeGetDependencies, (CUgraphNode node, CUgraphNode* nodes, size_t* count),
      nodes_before(node, nodes, nullptr, count))
ENTRY(cuGraphNodeGetDependencies_v2, (CUgraphNode node, CUgraphNode* nodes, CUgraphEdgeData* data, size_t* count),
      nodes_before(node, nodes, data, count))
ENTRY(cuGraphNodeGetDependentNodes, (CUgraphNode node, CUgraphNode* nodes, size_t* count),
      nodes_behind(node, nodes, count))
ENTRY(cuGraphAddDependencies, (CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count),
      change_edges(graph, from, to, nullptr, count, true))
ENTRY(cuGraphAddDependencies_v2,
      (CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, const CUgraphEdgeData* data, size_t count),
      change_edges(graph, from, to, data, count, true))
ENTRY(cuGraphRemoveDependencies, (CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count),
      change_edges(graph, from, to, nullptr, count, false))
ENTRY(cuGraphRemoveDependencies_v2,
      (CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, const CUgraphEdgeData* data, size_t count),
      change_edges(graph, from, to, data, count, false))
