// cuGraphInstantiate*, cuGraphLaunch and cuGraphExec*.
#include "softgpu/graph_exec.h"
#include "softgpu/graph_nodes.h"
#include "softgpu/stream.h"

namespace softgpu {
namespace {

CUresult upload(CUgraphExec handle, CUstream stream_handle, DefaultStream which) {
    GraphExecRef exec;
    TRY(find_exec(handle, &exec));
    StreamRef stream;
    ContextRef context;
    return find_stream(stream_handle, which, &stream, &context);
}

CUresult instantiate_with(CUgraphExec* out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* parameters,
                          DefaultStream which) {
    if (!parameters) return CUDA_ERROR_INVALID_VALUE;
    Refusal refusal;
    const CUresult result = instantiate(graph, parameters->flags, out, &refusal);
    parameters->hErrNode_out = refusal.node;
    parameters->result_out = result == CUDA_SUCCESS || refusal.reason != CUDA_GRAPH_INSTANTIATE_SUCCESS
                                 ? refusal.reason
                                 : CUDA_GRAPH_INSTANTIATE_ERROR;
    TRY(result);
    return parameters->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD ? upload(*out, parameters->hUploadStream, which)
                                                                  : CUDA_SUCCESS;
}

template <class Make>
CUresult set_made(CUgraphExec handle, CUgraphNode node, Make&& make) {
    GraphExecRef exec;
    TRY(find_exec(handle, &exec));
    NodeBody body;
    TRY(make(&body));
    return set_node(*exec, node, std::move(body));
}

CUresult update_exec(CUgraphExec handle, CUgraph graph, CUgraphExecUpdateResultInfo* info) {
    GraphExecRef exec;
    TRY(find_exec(handle, &exec));
    return update(*exec, graph, info);
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

DRIVER_API cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
    return entry([&] {
        Refusal refusal;
        return instantiate(graph, flags, exec, &refusal);
    });
}
PLAIN_AND_PTSZ(cuGraphInstantiateWithParams,
               (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* parameters),
               instantiate_with(exec, graph, parameters, which))
PLAIN_AND_PTSZ(cuGraphLaunch, (CUgraphExec exec, CUstream stream), launch(exec, stream, which))
PLAIN_AND_PTSZ(cuGraphUpload, (CUgraphExec exec, CUstream stream), upload(exec, stream, which))
ENTRY(cuGraphExecDestroy, (CUgraphExec exec), destroy_exec(exec))
DRIVER_API cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode* error_node,
                             CUgraphExecUpdateResult* result) {
    return entry([&] {
        if (!error_node || !result) return CUDA_ERROR_INVALID_VALUE;
        CUgraphExecUpdateResultInfo info{CU_GRAPH_EXEC_UPDATE_ERROR, nullptr, nullptr};
        const CUresult outcome = update_exec(exec, graph, &info);
        *error_node = info.errorNode;
        *result = info.result;
        return outcome;
    });
}
DRIVER_API cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info) {
    return entry([&] {
        if (!info) return CUDA_ERROR_INVALID_VALUE;
        *info = {CU_GRAPH_EXEC_UPDATE_ERROR, nullptr, nullptr};
        return update_exec(exec, graph, info);
    });
}

ENTRY(cuGraphExecNodeSetParams, (CUgraphExec exec, CUgraphNode node, CUgraphNodeParams* parameters),
      set_made(exec, node, [&](NodeBody* body) { return any_node(parameters, body); }))
ENTRY(cuGraphExecChildGraphNodeSetParams, (CUgraphExec exec, CUgraphNode node, CUgraph child),
      set_made(exec, node, [&](NodeBody* body) { return child_node(child, body); }))
ENTRY(cuGraphExecKernelNodeSetParams_v2,
      (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* parameters),
      set_made(exec, node, [&](NodeBody* body) { return kernel_node(parameters, body); }))
ENTRY(cuGraphExecMemcpyNodeSetParams,
      (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* parameters, CUcontext context),
      set_made(exec, node, [&](NodeBody* body) { return copy_node(parameters, context, body); }))
ENTRY(cuGraphExecMemsetNodeSetParams,
      (CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* parameters, CUcontext context),
      set_made(exec, node, [&](NodeBody* body) { return memset_node(parameters, context, body); }))

DRIVER_API cuGraphNodeSetEnabled(CUgraphExec handle, CUgraphNode node, unsigned int enabled) {
    return entry([&] {
        GraphExecRef exec;
        TRY(find_exec(handle, &exec));
        return set_enabled(*exec, node, enabled != 0);
    });
}
DRIVER_API cuGraphNodeGetEnabled(CUgraphExec handle, CUgraphNode node, unsigned int* enabled) {
    return entry([&] {
        if (!enabled) return CUDA_ERROR_INVALID_VALUE;
        GraphExecRef exec;
        TRY(find_exec(handle, &exec));
        bool on = false;
        TRY(get_enabled(*exec, node, &on));
        *enabled = on ? 1 : 0;
        return CUDA_SUCCESS;
    });
}
