// cuGraphAdd*Node and cuGraph*NodeGet/Set*: adding nodes, and asking and changing what they do.
#include "softgpu/event.h"
#include "softgpu/graph_nodes.h"
#include "softgpu/launch.h"

namespace softgpu {
namespace {

using Lock = std::lock_guard<std::mutex>;

// Where a node goes and what it comes after, as every cuGraphAdd*Node takes it.
struct Place {
    CUgraphNode* out;
    CUgraph graph;
    const CUgraphNode* after;
    size_t count;
    const CUgraphEdgeData* edges = nullptr;
};

CUresult add(const Place& place, NodeBody body) {
    if (!place.out) return CUDA_ERROR_INVALID_VALUE;
    const Lock lock(graph_lock());
    const GraphRef graph = graph_from(place.graph);
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    std::vector<Edge> after;
    TRY(edges_from(*graph, place.after, place.edges, place.count, &after));
    if (const auto* child = std::get_if<ChildNode>(&body)) publish(child->graph);
    *place.out = add_node(*graph, std::move(body), std::move(after))->handle;
    return CUDA_SUCCESS;
}

// Makes the body, then adds it.
template <class Make>
CUresult add_made(const Place& place, Make&& make) {
    NodeBody body;
    TRY(make(&body));
    return add(place, std::move(body));
}

template <class Make>
CUresult set_made(CUgraphNode handle, Make&& make) {
    NodeBody body;
    TRY(make(&body));
    const Lock lock(graph_lock());
    const NodeRef node = node_from_handle(handle);
    if (!node || node->body.index() != body.index()) return CUDA_ERROR_INVALID_VALUE;
    if (const auto* child = std::get_if<ChildNode>(&node->body)) remove_graph(child->graph);
    if (const auto* child = std::get_if<ChildNode>(&body)) publish(child->graph);
    node->body = std::move(body);
    return CUDA_SUCCESS;
}

// Hands the body to `read` if the node is of that kind.
template <class Body, class Read>
CUresult with(CUgraphNode handle, const void* out, Read&& read) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    const Lock lock(graph_lock());
    const NodeRef node = node_from_handle(handle);
    const Body* body = node ? std::get_if<Body>(&node->body) : nullptr;
    if (!body) return CUDA_ERROR_INVALID_VALUE;
    read(*body);
    return CUDA_SUCCESS;
}

void describe(const Launch& launch, CUDA_KERNEL_NODE_PARAMS* out) {
    out->func = launch.function->handle;
    out->gridDimX = launch.grid[0];
    out->gridDimY = launch.grid[1];
    out->gridDimZ = launch.grid[2];
    out->blockDimX = launch.block[0];
    out->blockDimY = launch.block[1];
    out->blockDimZ = launch.block[2];
    out->sharedMemBytes = launch.shared_bytes;
    out->kernelParams = const_cast<void**>(launch.argument_pointers.data());
    out->extra = nullptr;
    out->kern = nullptr;
    const ContextRef context = launch.function->context.lock();
    out->ctx = context ? context->handle : nullptr;
}

CUresult set_kernel_attribute(CUgraphNode handle, CUkernelNodeAttrID attribute, const CUkernelNodeAttrValue* value) {
    if (!value || attribute < 0 || attribute >= CU_LAUNCH_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
    const Lock lock(graph_lock());
    const NodeRef node = node_from_handle(handle);
    if (!node || !std::get_if<KernelNode>(&node->body)) return CUDA_ERROR_INVALID_VALUE;
    node->attributes[attribute] = *value;
    return CUDA_SUCCESS;
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

ENTRY(cuGraphAddEmptyNode, (CUgraphNode * out, CUgraph graph, const CUgraphNode* after, size_t count),
      add({out, graph, after, count}, EmptyNode{}))
ENTRY(cuGraphAddKernelNode_v2,
      (CUgraphNode * out, CUgraph graph, const CUgraphNode* after, size_t count,
       const CUDA_KERNEL_NODE_PARAMS* parameters),
      add_made({out, graph, after, count}, [&](NodeBody* body) { return kernel_node(parameters, body); }))
ENTRY(cuGraphAddMemcpyNode,
      (CUgraphNode * out, CUgraph graph, const CUgraphNode* after, size_t count, const CUDA_MEMCPY3D* parameters,
       CUcontext context),
      add_made({out, graph, after, count}, [&](NodeBody* body) { return copy_node(parameters, context, body); }))
ENTRY(cuGraphAddMemsetNode,
      (CUgraphNode * out, CUgraph graph, const CUgraphNode* after, size_t count,
       const CUDA_MEMSET_NODE_PARAMS* parameters, CUcontext context),
      add_made({out, graph, after, count}, [&](NodeBody* body) { return memset_node(parameters, context, body); }))
ENTRY(cuGraphAddChildGraphNode,
      (CUgraphNode * out, CUgraph graph, const CUgraphNode* after, size_t count, CUgraph child),
      add_made({out, graph, after, count}, [&](NodeBody* body) { return child_node(child, body); }))
ENTRY(cuGraphAddBatchMemOpNode,
      (CUgraphNode * out, CUgraph graph, const CUgraphNode* after, size_t count,
       const CUDA_BATCH_MEM_OP_NODE_PARAMS* parameters),
      add_made({out, graph, after, count}, [&](NodeBody* body) { return value_node(parameters, body); }))
ENTRY(cuGraphAddNode_v2,
      (CUgraphNode * out, CUgraph graph, const CUgraphNode* after, const CUgraphEdgeData* edges, size_t count,
       CUgraphNodeParams* parameters),
      add_made({out, graph, after, count, edges}, [&](NodeBody* body) { return any_node(parameters, body); }))

ENTRY(cuGraphConditionalHandleCreate,
      (CUgraphConditionalHandle * out, CUgraph graph, CUcontext, unsigned int value, unsigned int flags),
      make_condition(graph, value, flags, out))

ENTRY(cuGraphNodeSetParams, (CUgraphNode node, CUgraphNodeParams* parameters),
      set_made(node, [&](NodeBody* body) { return any_node(parameters, body); }))
ENTRY(cuGraphKernelNodeSetParams_v2, (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* parameters),
      set_made(node, [&](NodeBody* body) { return kernel_node(parameters, body); }))
ENTRY(cuGraphMemcpyNodeSetParams, (CUgraphNode node, const CUDA_MEMCPY3D* parameters),
      set_made(node, [&](NodeBody* body) { return copy_node(parameters, nullptr, body); }))
ENTRY(cuGraphMemsetNodeSetParams, (CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* parameters),
      set_made(node, [&](NodeBody* body) { return memset_node(parameters, nullptr, body); }))
ENTRY(cuGraphKernelNodeGetParams_v2, (CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* out),
      with<KernelNode>(node, out, [&](const KernelNode& body) { describe(*body.launch, out); }))
ENTRY(cuGraphChildGraphNodeGetGraph, (CUgraphNode node, CUgraph* out),
      with<ChildNode>(node, out,
                      [&](const ChildNode& body) { *out = body.conditional ? nullptr : body.graph->handle; }))
ENTRY(cuGraphKernelNodeSetAttribute,
      (CUgraphNode node, CUkernelNodeAttrID attribute, const CUkernelNodeAttrValue* value),
      set_kernel_attribute(node, attribute, value))
