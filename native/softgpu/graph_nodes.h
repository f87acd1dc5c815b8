// From the parameter structures of the API to what a node does, and back.
#pragma once

#include "softgpu/graph.h"

namespace softgpu {

CUresult kernel_node(const CUDA_KERNEL_NODE_PARAMS* parameters, NodeBody* out);
CUresult copy_node(const CUDA_MEMCPY3D* parameters, CUcontext context, NodeBody* out);
CUresult memset_node(const CUDA_MEMSET_NODE_PARAMS* parameters, CUcontext context, NodeBody* out);
CUresult value_node(const CUDA_BATCH_MEM_OP_NODE_PARAMS* parameters, NodeBody* out);
CUresult child_node(CUgraph graph, NodeBody* out);  // of a copy of it; graph_lock() must not be held
CUresult conditional_node(CUDA_CONDITIONAL_NODE_PARAMS* parameters, NodeBody* out);
CUresult make_condition(CUgraph graph, unsigned value, unsigned flags, CUgraphConditionalHandle* out);
CUresult any_node(CUgraphNodeParams* parameters, NodeBody* out);

}  // namespace softgpu
