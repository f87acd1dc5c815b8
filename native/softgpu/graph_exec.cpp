#include "softgpu/graph_exec.h"

#include <algorithm>
#include <set>

#include "softgpu/capture.h"
#include "softgpu/launch.h"
#include "softgpu/stream.h"
#include "softgpu/value_operations.h"

namespace softgpu {
namespace {

constexpr size_t most_lanes = 32;

Registry<GraphExec, CUgraphExec>& execs() {
    static auto& registry = *new Registry<GraphExec, CUgraphExec>(10);
    return registry;
}

// What a node runs in this context.
struct Steps {
    Context& context;
    std::vector<Operation>* out;

    CUresult one(Operation operation) const {
        out->push_back(std::move(operation));
        return CUDA_SUCCESS;
    }
    template <class Make>
    CUresult one_in(CUcontext of_node, Make&& make) const {
        const ScopedContext current(of_node ? of_node : context.handle);
        Operation operation;
        TRY(make(&operation));
        return one(std::move(operation));
    }
    CUresult operator()(const EmptyNode&) const { return CUDA_SUCCESS; }
    CUresult operator()(const ChildNode&) const { return CUDA_SUCCESS; }
    CUresult operator()(const CapturedNode& node) const { return one(node.operation); }
    CUresult operator()(const KernelNode& node) const { return one(operation_of(context, node.launch)); }
    CUresult operator()(const CopyNode& node) const {
        return one_in(node.context, [&](Operation* operation) { return make_copy(node.copy, operation); });
    }
    CUresult operator()(const MemsetNode& node) const {
        return one_in(node.context, [&](Operation* operation) { return make_memset(node.fill, operation); });
    }
    CUresult operator()(const ValueNode& node) const {
        return make_value_operations(context, node.operations.data(), static_cast<unsigned>(node.operations.size()),
                                     node.flags, out);
    }
};

CUresult make_steps(Context& context, Planned& planned) {
    planned.steps.clear();
    return std::visit(Steps{context, &planned.steps}, planned.node->body);
}

// Appends a graph's nodes to the plan; `before` is what all of it comes after. Returns the places it ends with.
// A node whose plan is its child's stands in it too, after all of that: it has nothing to run.
bool flatten(const Graph& graph, const std::vector<size_t>& before, std::vector<Planned>& plan,
             std::vector<size_t>* ends) {
    const std::vector<NodeRef> order = in_order(graph);
    if (order.empty() && !graph.nodes.empty()) return false;
    std::map<const Node*, size_t> place;
    std::map<const Node*, bool> has_later;
    for (const NodeRef& node : order) {
        Planned planned;
        planned.node = node;
        for (const Edge& edge : node->after) {
            planned.after.push_back(place[edge.from.get()]);
            has_later[edge.from.get()] = true;
        }
        if (node->after.empty()) planned.after = before;
        if (const auto* child = std::get_if<ChildNode>(&node->body); child && child->runs) {
            std::vector<size_t> child_ends;
            if (!flatten(*child->graph, planned.after, plan, &child_ends)) return false;
            if (!child_ends.empty()) planned.after = std::move(child_ends);
        }
        place[node.get()] = plan.size();
        plan.push_back(std::move(planned));
    }
    for (const NodeRef& node : order) {
        if (!has_later[node.get()]) ends->push_back(place[node.get()]);
    }
    return true;
}

// A node goes on in the lane of something it comes after, where that lane has not been taken further already.
size_t assign_lanes(std::vector<Planned>& plan) {
    std::vector<size_t> tail;  // the last place in each lane
    for (size_t i = 0; i < plan.size(); ++i) {
        size_t lane = tail.size();
        for (const size_t earlier : plan[i].after) {
            if (tail[plan[earlier].lane] == earlier) {
                lane = plan[earlier].lane;
                break;
            }
        }
        if (lane == most_lanes) lane = i % most_lanes;  // queues keep order, so sharing one only adds waiting
        if (lane == tail.size()) tail.push_back(i);
        plan[i].lane = lane;
        tail[lane] = i;
    }
    return tail.size();
}

bool lay_out(GraphExec& exec) {
    std::vector<size_t> ends;
    exec.plan.clear();
    if (!flatten(*exec.graph, {}, exec.plan, &ends)) return false;
    exec.lanes = assign_lanes(exec.plan);
    return true;
}

void close_queues(GraphExec& exec) {
    if (const ContextRef context = exec.context.lock()) {
        for (const QueueId queue : exec.queues) context->engine->close_queue(queue);
    }
    exec.queues.clear();
}

// Opens the lanes and makes the steps for the context of the stream, unless they are there from the last launch.
CUresult prepare(GraphExec& exec, const ContextRef& context, int priority) {
    if (exec.context.lock() != context) {
        close_queues(exec);
        exec.context.reset();
        exec.last = 0;
        for (Planned& planned : exec.plan) TRY(make_steps(*context, planned));
        exec.context = context;
    }
    while (exec.queues.size() + 1 < exec.lanes) exec.queues.push_back(context->engine->open_queue(priority));
    return CUDA_SUCCESS;
}

OpId submit_node(const ContextRef& context, QueueId queue, const Planned& planned, std::vector<OpId> after) {
    OpId last = 0;
    if (planned.enabled) {
        for (const Operation& step : planned.steps) {
            last = submit_to(*context->engine, queue, step, after);
            after.clear();
        }
    }
    return last ? last : context->engine->submit(queue, model::Work{}, nullptr, after);
}

// From outside one operation: it starts after all that is in the stream, and the stream goes on when all of it is done.
void submit_plan(GraphExec& exec, const ContextRef& context, Stream& stream) {
    Engine& engine = *context->engine;
    std::vector<OpId> before = implicit_order(*context, stream);
    if (exec.last) before.push_back(exec.last);
    OpId start = 0;
    if (exec.lanes > 1 || exec.plan.empty()) {
        start = engine.submit(stream.queue, model::Work{}, nullptr, before);
        before.clear();
    }
    std::vector<OpId> ops(exec.plan.size());
    std::vector<bool> seen(exec.lanes);
    for (size_t i = 0; i < exec.plan.size(); ++i) {
        const Planned& planned = exec.plan[i];
        std::vector<OpId> after;
        for (const size_t earlier : planned.after) {
            if (exec.plan[earlier].lane != planned.lane) after.push_back(ops[earlier]);
        }
        if (!seen[planned.lane]) {
            if (planned.lane > 0) after.push_back(start);
            if (planned.lane == 0) after.insert(after.end(), before.begin(), before.end());
            seen[planned.lane] = true;
        }
        const QueueId queue = planned.lane == 0 ? stream.queue : exec.queues[planned.lane - 1];
        ops[i] = submit_node(context, queue, planned, std::move(after));
    }
    if (exec.lanes > 1) {
        std::vector<OpId> ends;
        for (const QueueId queue : exec.queues) ends.push_back(engine.last(queue));
        engine.submit(stream.queue, model::Work{}, nullptr, ends);
    }
    exec.last = engine.last(stream.queue);
}

bool same_kind_of_copy(const CUDA_MEMCPY3D& a, const CUDA_MEMCPY3D& b) {
    return a.srcMemoryType == b.srcMemoryType && a.dstMemoryType == b.dstMemoryType;
}

bool same_type(const NodeBody& a, const NodeBody& b) { return a.index() == b.index() && type_of(a) == type_of(b); }

CUgraphExecUpdateResult compare_bodies(const NodeBody& have, const NodeBody& wanted) {
    if (const auto* copy = std::get_if<CopyNode>(&have)) {
        const bool same = same_kind_of_copy(copy->copy, std::get<CopyNode>(wanted).copy);
        return same ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    }
    if (const auto* kernel = std::get_if<KernelNode>(&have)) {
        const auto& other = std::get<KernelNode>(wanted);
        const bool same = kernel->launch->function->context.lock() == other.launch->function->context.lock();
        return same ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_FUNCTION_CHANGED;
    }
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

using Pairs = std::vector<std::pair<Node*, const Node*>>;

std::vector<NodeRef> exits(const Graph& graph) {
    std::set<const Node*> inner;
    for (const NodeRef& node : graph.nodes) {
        for (const Edge& edge : node->after) inner.insert(edge.from.get());
    }
    std::vector<NodeRef> result;
    for (const NodeRef& node : graph.nodes) {
        if (inner.count(node.get()) == 0) result.push_back(node);
    }
    return result;
}

// Pairs the nodes of two graphs as the driver does: exit nodes in the order they were added, then what each comes after
// in the order of its edges.
CUgraphExecUpdateResultInfo compare(const Graph& have, const Graph& wanted, Pairs* pairs) {
    const std::vector<NodeRef> old_exits = exits(have), new_exits = exits(wanted);
    if (have.nodes.size() != wanted.nodes.size())
        return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, nullptr, nullptr};
    if (old_exits.size() != new_exits.size())
        return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, new_exits.back()->handle, nullptr};
    std::map<const Node*, const Node*> paired;
    Pairs here;
    for (size_t i = 0; i < old_exits.size(); ++i) {
        paired[new_exits[i].get()] = old_exits[i].get();
        here.emplace_back(old_exits[i].get(), new_exits[i].get());
    }
    for (size_t i = 0; i < here.size(); ++i) {
        Node& old_node = *here[i].first;
        const Node& new_node = *here[i].second;
        if (!same_type(old_node.body, new_node.body))
            return {CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, new_node.handle, nullptr};
        if (old_node.after.size() != new_node.after.size())
            return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, new_node.handle, nullptr};
        for (size_t j = 0; j < old_node.after.size(); ++j) {
            Node* old_before = old_node.after[j].from.get();
            const NodeRef& new_before = new_node.after[j].from;
            const auto [known, fresh] = paired.try_emplace(new_before.get(), old_before);
            if (known->second != old_before)
                return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, new_node.handle, new_before->handle};
            if (fresh) here.emplace_back(old_before, new_before.get());
        }
        if (const auto* child = std::get_if<ChildNode>(&old_node.body)) {
            const auto inner = compare(*child->graph, *std::get<ChildNode>(new_node.body).graph, pairs);
            if (inner.result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return inner;
            continue;
        }
        const CUgraphExecUpdateResult result = compare_bodies(old_node.body, new_node.body);
        if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return {result, new_node.handle, nullptr};
        pairs->push_back(here[i]);
    }
    return {CU_GRAPH_EXEC_UPDATE_SUCCESS, nullptr, nullptr};
}

void take_over(const Pairs& pairs) {
    for (const auto& [have, wanted] : pairs) have->body = wanted->body;
}

// The steps that were made are for the old parameters.
CUresult remake(GraphExec& exec, const Node* only) {
    const ContextRef context = exec.context.lock();
    if (!context) return CUDA_SUCCESS;
    for (Planned& planned : exec.plan) {
        if (!only || planned.node.get() == only) TRY(make_steps(*context, planned));
    }
    return CUDA_SUCCESS;
}

CUresult find_node(GraphExec& exec, CUgraphNode original, NodeRef* out) {
    *out = find_copy(*exec.graph, original);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult find_exec(CUgraphExec handle, GraphExecRef* out) {
    *out = execs().find(handle);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult instantiate(CUgraph handle, unsigned long long flags, CUgraphExec* out, Refusal* refusal) {
    constexpr unsigned long long known = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                         CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                                         CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) return CUDA_ERROR_NOT_SUPPORTED;
    if (!out || flags & ~known) return CUDA_ERROR_INVALID_VALUE;
    ContextRef context;
    TRY(current_context(&context));
    auto exec = std::make_shared<GraphExec>();
    {
        const std::lock_guard<std::mutex> lock(graph_lock());
        const GraphRef graph = graph_from(handle);
        if (!graph) return CUDA_ERROR_INVALID_VALUE;
        exec->graph = copy_graph(*graph);
        exec->graph->owned = true;
        if (!lay_out(*exec)) {
            refusal->reason = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
            remove_graph(exec->graph);
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    for (Planned& planned : exec->plan) {
        if (const CUresult result = make_steps(*context, planned); result != CUDA_SUCCESS) {
            refusal->reason = CUDA_GRAPH_INSTANTIATE_ERROR;
            refusal->node = planned.node->origin;
            const std::lock_guard<std::mutex> lock(graph_lock());
            remove_graph(exec->graph);
            return result;
        }
    }
    exec->context = context;
    exec->handle = execs().issue();
    execs().put(exec->handle, exec);
    *out = exec->handle;
    return CUDA_SUCCESS;
}

CUresult launch(CUgraphExec handle, CUstream stream_handle, DefaultStream which) {
    GraphExecRef exec;
    TRY(find_exec(handle, &exec));
    StreamRef stream;
    ContextRef context;
    TRY(find_stream(stream_handle, which, &stream, &context));
    TRY(forbid_while_capturing(*context, *stream));  // it does not become a child node: the driver refuses
    const std::lock_guard<std::mutex> exec_lock(exec->mutex);
    TRY(prepare(*exec, context, stream->priority));
    const std::lock_guard<std::mutex> order_lock(stream->order);
    submit_plan(*exec, context, *stream);
    return check_context(*context);
}

CUresult destroy_exec(CUgraphExec handle) {
    const GraphExecRef exec = execs().remove(handle);
    if (!exec) return CUDA_ERROR_INVALID_VALUE;
    const std::lock_guard<std::mutex> exec_lock(exec->mutex);
    close_queues(*exec);
    {
        const std::lock_guard<std::mutex> lock(graph_lock());
        remove_graph(exec->graph);
    }
    return CUDA_SUCCESS;
}

CUresult set_node(GraphExec& exec, CUgraphNode original, NodeBody body) {
    const std::lock_guard<std::mutex> exec_lock(exec.mutex);
    NodeRef node;
    {
        const std::lock_guard<std::mutex> lock(graph_lock());
        TRY(find_node(exec, original, &node));
        if (!same_type(node->body, body)) return CUDA_ERROR_INVALID_VALUE;
        if (auto* child = std::get_if<ChildNode>(&node->body)) {
            const Graph& wanted = *std::get<ChildNode>(body).graph;
            Pairs pairs;
            const auto compared = compare(*child->graph, wanted, &pairs);
            if (compared.result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
            take_over(pairs);
            node = nullptr;
        } else {
            if (compare_bodies(node->body, body) != CU_GRAPH_EXEC_UPDATE_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
            node->body = std::move(body);
        }
    }
    return remake(exec, node.get());
}

CUresult set_enabled(GraphExec& exec, CUgraphNode original, bool enabled) {
    const std::lock_guard<std::mutex> exec_lock(exec.mutex);
    const std::lock_guard<std::mutex> lock(graph_lock());
    NodeRef node;
    TRY(find_node(exec, original, &node));
    const CUgraphNodeType type = type_of(node->body);
    if (type != CU_GRAPH_NODE_TYPE_KERNEL && type != CU_GRAPH_NODE_TYPE_MEMSET && type != CU_GRAPH_NODE_TYPE_MEMCPY) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (Planned& planned : exec.plan) {
        if (planned.node == node) planned.enabled = enabled;
    }
    return CUDA_SUCCESS;
}

CUresult get_enabled(GraphExec& exec, CUgraphNode original, bool* enabled) {
    const std::lock_guard<std::mutex> exec_lock(exec.mutex);
    const std::lock_guard<std::mutex> lock(graph_lock());
    NodeRef node;
    TRY(find_node(exec, original, &node));
    for (const Planned& planned : exec.plan) {
        if (planned.node == node) *enabled = planned.enabled;
    }
    return CUDA_SUCCESS;
}

CUresult update(GraphExec& exec, CUgraph handle, CUgraphExecUpdateResultInfo* info) {
    const std::lock_guard<std::mutex> exec_lock(exec.mutex);
    {
        const std::lock_guard<std::mutex> lock(graph_lock());
        const GraphRef graph = graph_from(handle);
        if (!graph) return CUDA_ERROR_INVALID_VALUE;
        Pairs pairs;
        *info = compare(*exec.graph, *graph, &pairs);
        if (info->result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
        take_over(pairs);
    }
    return remake(exec, nullptr);
}

}  // namespace softgpu
