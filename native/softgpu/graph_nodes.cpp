#include "softgpu/graph_nodes.h"

#include "softgpu/context.h"
#include "softgpu/launch.h"

namespace softgpu {
namespace {

CUresult check_given(CUcontext context) {
    if (!context) return CUDA_SUCCESS;
    return context_from(context) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

template <class Parameters>
CUresult kernel_from(const Parameters& wanted, NodeBody* out) {
    TRY(check_given(wanted.ctx));
    const ScopedContext current(wanted.ctx);
    LaunchRef launch;
    TRY(make_launch({wanted.func,
                     {wanted.gridDimX, wanted.gridDimY, wanted.gridDimZ},
                     {wanted.blockDimX, wanted.blockDimY, wanted.blockDimZ},
                     wanted.sharedMemBytes,
                     wanted.kernelParams,
                     wanted.extra},
                    &launch));
    *out = KernelNode{std::move(launch)};
    return CUDA_SUCCESS;
}

// The values that conditions have at a launch, by handle. Under graph_lock().
std::vector<unsigned>& conditions() {
    static auto& values = *new std::vector<unsigned>;
    return values;
}

CUcontext given_or_current(CUcontext context) { return context ? context : top_context(); }

// One that can be made now; what it runs is made again for each context that it is launched in.
template <class Node, class Parameters>
CUresult checked_node(const Parameters* parameters, CUcontext context, CUresult make(const Parameters&, Operation*),
                      NodeBody* out) {
    if (!parameters) return CUDA_ERROR_INVALID_VALUE;
    TRY(check_given(context));
    context = given_or_current(context);
    const ScopedContext current(context);
    Operation checked;
    TRY(make(*parameters, &checked));
    *out = Node{*parameters, context};
    return CUDA_SUCCESS;
}

}  // namespace

CUresult kernel_node(const CUDA_KERNEL_NODE_PARAMS* parameters, NodeBody* out) {
    return parameters ? kernel_from(*parameters, out) : CUDA_ERROR_INVALID_VALUE;
}

CUresult copy_node(const CUDA_MEMCPY3D* parameters, CUcontext context, NodeBody* out) {
    return checked_node<CopyNode>(parameters, context, make_copy, out);
}

CUresult memset_node(const CUDA_MEMSET_NODE_PARAMS* parameters, CUcontext context, NodeBody* out) {
    return checked_node<MemsetNode>(parameters, context, make_memset, out);
}

CUresult value_node(const CUDA_BATCH_MEM_OP_NODE_PARAMS* parameters, NodeBody* out) {
    if (!parameters || !parameters->paramArray || parameters->count == 0 || parameters->flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    TRY(check_given(parameters->ctx));
    *out = ValueNode{given_or_current(parameters->ctx),
                     {parameters->paramArray, parameters->paramArray + parameters->count},
                     parameters->flags};
    return CUDA_SUCCESS;
}

CUresult child_node(CUgraph handle, NodeBody* out) {
    const std::lock_guard<std::mutex> lock(graph_lock());
    const GraphRef graph = graph_from(handle);
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    const GraphRef copy = copy_graph(*graph);
    copy->owned = true;
    *out = ChildNode{copy};
    return CUDA_SUCCESS;
}

CUresult make_condition(CUgraph graph, unsigned value, unsigned flags, CUgraphConditionalHandle* out) {
    const std::lock_guard<std::mutex> lock(graph_lock());
    if (!out || !graph_from(graph)) return CUDA_ERROR_INVALID_VALUE;
    conditions().push_back(flags & CU_GRAPH_COND_ASSIGN_DEFAULT ? value : 0);
    *out = conditions().size();
    return CUDA_SUCCESS;
}

CUresult conditional_node(CUDA_CONDITIONAL_NODE_PARAMS* parameters, NodeBody* out) {
    const std::lock_guard<std::mutex> lock(graph_lock());
    if (parameters->handle == 0 || parameters->handle > conditions().size()) return CUDA_ERROR_INVALID_VALUE;
    if (parameters->type != CU_GRAPH_COND_TYPE_IF || parameters->size != 1) return CUDA_ERROR_NOT_SUPPORTED;
    const GraphRef body = make_graph();
    body->owned = true;
    const auto handle = std::make_shared<CUgraph>(body->handle);
    parameters->phGraph_out = handle.get();
    *out = ChildNode{body, true, conditions()[parameters->handle - 1] != 0, handle};
    return CUDA_SUCCESS;
}

CUresult any_node(CUgraphNodeParams* parameters, NodeBody* out) {
    if (!parameters) return CUDA_ERROR_INVALID_VALUE;
    switch (parameters->type) {
        case CU_GRAPH_NODE_TYPE_KERNEL:
            return kernel_from(parameters->kernel, out);
        case CU_GRAPH_NODE_TYPE_MEMCPY:
            return copy_node(&parameters->memcpy.copyParams, parameters->memcpy.copyCtx, out);
        case CU_GRAPH_NODE_TYPE_MEMSET: {
            const CUDA_MEMSET_NODE_PARAMS_v2& wanted = parameters->memset;
            const CUDA_MEMSET_NODE_PARAMS fill{wanted.dst,         wanted.pitch, wanted.value,
                                               wanted.elementSize, wanted.width, wanted.height};
            return memset_node(&fill, wanted.ctx, out);
        }
        case CU_GRAPH_NODE_TYPE_GRAPH:
            return child_node(parameters->graph.graph, out);
        case CU_GRAPH_NODE_TYPE_CONDITIONAL:
            return conditional_node(&parameters->conditional, out);
        default:
            return CUDA_ERROR_NOT_SUPPORTED;
    }
}

}  // namespace softgpu
