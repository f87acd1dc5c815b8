// cuGraph*Mem{Alloc,Free}Node: such a node is what capturing an allocation or a free in stream order leaves.
#include "softgpu/context.h"
#include "softgpu/graph.h"

namespace softgpu {
namespace {

// Captures one call into the graph after the given nodes, and answers with the node it left.
template <class Call>
CUresult capture_one(CUgraphNode* out, CUgraph graph, const CUgraphNode* after, size_t count, Call&& call) {
    CUstream stream = nullptr;
    TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUresult result = cuStreamBeginCaptureToGraph(stream, graph, after, nullptr, count, CU_STREAM_CAPTURE_MODE_RELAXED);
    if (result == CUDA_SUCCESS) {
        result = call(stream);
        CUgraph same = nullptr;
        const CUresult ended = cuStreamEndCapture(stream, &same);
        if (result == CUDA_SUCCESS) result = ended;
    }
    cuStreamDestroy_v2(stream);
    TRY(result);
    const std::lock_guard<std::mutex> lock(graph_lock());
    const GraphRef captured = graph_from(graph);
    if (!captured || captured->nodes.empty()) return CUDA_ERROR_INVALID_VALUE;
    *out = captured->nodes.back()->handle;
    return CUDA_SUCCESS;
}

CUresult add_allocation(CUgraphNode* out, CUgraph graph, const CUgraphNode* after, size_t count,
                        CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
    if (!out || !parameters || parameters->bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
    if (parameters->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        parameters->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        parameters->poolProps.handleTypes != CU_MEM_HANDLE_TYPE_NONE) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUmemoryPool pool = nullptr;
    TRY(cuDeviceGetMemPool(&pool, parameters->poolProps.location.id));
    return capture_one(out, graph, after, count, [&](CUstream stream) {
        return cuMemAllocFromPoolAsync(&parameters->dptr, parameters->bytesize, pool, stream);
    });
}

CUresult add_free(CUgraphNode* out, CUgraph graph, const CUgraphNode* after, size_t count, CUdeviceptr pointer) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    return capture_one(out, graph, after, count, [&](CUstream stream) { return cuMemFreeAsync(pointer, stream); });
}

template <class Parameters>
CUresult parameters_of(CUgraphNode handle, CUgraphNodeType type, Parameters* out) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    const std::lock_guard<std::mutex> lock(graph_lock());
    const NodeRef node = node_from_handle(handle);
    const auto* body = node ? std::get_if<CapturedNode>(&node->body) : nullptr;
    if (!body || body->operation.type != type || !body->operation.node_params) return CUDA_ERROR_INVALID_VALUE;
    *out = *static_cast<const Parameters*>(body->operation.node_params.get());
    return CUDA_SUCCESS;
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

ENTRY(cuGraphAddMemAllocNode,
      (CUgraphNode * out, CUgraph graph, const CUgraphNode* after, size_t count,
       CUDA_MEM_ALLOC_NODE_PARAMS* parameters),
      add_allocation(out, graph, after, count, parameters))
ENTRY(cuGraphAddMemFreeNode,
      (CUgraphNode * out, CUgraph graph, const CUgraphNode* after, size_t count, CUdeviceptr pointer),
      add_free(out, graph, after, count, pointer))
ENTRY(cuGraphMemAllocNodeGetParams, (CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* out),
      parameters_of(node, CU_GRAPH_NODE_TYPE_MEM_ALLOC, out))
ENTRY(cuGraphMemFreeNodeGetParams, (CUgraphNode node, CUdeviceptr* out),
      parameters_of(node, CU_GRAPH_NODE_TYPE_MEM_FREE, out))
ENTRY(cuDeviceGraphMemTrim, (CUdevice device), device_spec(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE)
