#include "tenant/graph_order.h"

#include <algorithm>
#include <cstdint>

namespace tenant {

namespace {

size_t count_of(CUgraph graph) {
    size_t count = 0;
    return driver.cuGraphGetNodes(graph, nullptr, &count) == CUDA_SUCCESS ? count : 0;
}

// What a node waits for, in the order of its edges. The older call refuses where an edge is of a special kind.
class Before {
 public:
    explicit Before(CUgraphNode node) : nodes_(count_before(node)), count_(nodes_.size()) {
        Array<CUgraphEdgeData> edges(count_);
        if (count_ == 0 || edges.size() != count_) return;
        if (driver.cuGraphNodeGetDependencies_v2(node, nodes_.data(), edges.data(), &count_) != CUDA_SUCCESS &&
            driver.cuGraphNodeGetDependencies(node, nodes_.data(), &count_) != CUDA_SUCCESS)
            count_ = 0;
    }
    size_t count() const { return count_; }
    CUgraphNode operator[](size_t i) { return nodes_[i]; }

    static size_t count_before(CUgraphNode node) {
        size_t count = 0;
        if (driver.cuGraphNodeGetDependencies_v2(node, nullptr, nullptr, &count) == CUDA_SUCCESS) return count;
        return driver.cuGraphNodeGetDependencies(node, nullptr, &count) == CUDA_SUCCESS ? count : 0;
    }

 private:
    Array<CUgraphNode> nodes_;
    size_t count_;
};

struct Known {
    CUgraphNode node;
    size_t next_edge, end_edge;  // of those that lead to it: not followed yet
    bool met, is_waited_for;

    bool operator<(const Known& other) const { return node < other.node; }
};

Known* find(Array<Known>& known, CUgraphNode node) {
    Known* end = known.data() + known.size();
    Known* found = std::lower_bound(known.data(), end, Known{node, 0, 0, false, false});
    return found != end && found->node == node ? found : nullptr;
}

}  // namespace

Nodes::Nodes(CUgraph graph) : nodes_(count_of(graph)), count_(nodes_.size()) {
    if (count_ > 0 && driver.cuGraphGetNodes(graph, nodes_.data(), &count_) != CUDA_SUCCESS) count_ = 0;
}

NodesInOrder::NodesInOrder(CUgraph graph) : order_(count_of(graph)) {
    Nodes added(graph);
    const size_t count = added.count();
    Array<Known> known(count);
    Array<Known*> path(count);  // from an exit node to the one that is looked at
    size_t edge_count = 0;
    for (size_t i = 0; i < count; ++i) edge_count += Before::count_before(added[i]);
    Array<Known*> edges(edge_count);
    if (count == 0 || order_.size() < count || known.size() != count || path.size() != count) return;
    if (edges.size() != edge_count) return;

    for (size_t i = 0; i < count; ++i) known[i].node = added[i];
    std::sort(known.data(), known.data() + count);
    for (size_t i = 0, edge = 0; i < count; ++i) {
        Before before(known[i].node);
        known[i].next_edge = edge;
        for (size_t j = 0; j < before.count() && edge < edge_count; ++j) {
            Known* one = find(known, before[j]);
            if (!one) continue;
            one->is_waited_for = true;
            edges[edge++] = one;
        }
        known[i].end_edge = edge;
    }
    for (size_t i = 0; i < count; ++i) {
        Known* exit = find(known, added[i]);
        if (!exit || exit->is_waited_for) continue;
        size_t depth = 0;
        exit->met = true;
        path[depth++] = exit;
        while (depth > 0) {
            Known& here = *path[depth - 1];
            if (here.next_edge == here.end_edge) {
                order_[count_++] = here.node;
                --depth;
                continue;
            }
            Known* before = edges[here.next_edge++];
            if (before->met) continue;
            before->met = true;
            path[depth++] = before;
        }
    }
}

}  // namespace tenant
