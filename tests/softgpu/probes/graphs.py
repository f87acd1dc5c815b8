"""Graphs: edges, parameters, updates."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.softgpu.calls import code, value
from tests.softgpu.probes.needs import empty_kernel, instantiated, new_graph
from tests.softgpu.probes.table import INVALID_VALUE, SUCCESS, UPDATE_FAILURE, probe


def add(cuda: Any, graph: Any, *after: Any) -> Any:
    return value(cuda.cuGraphAddEmptyNode(graph, list(after) or None, len(after)))


def connect(cuda: Any, graph: Any, earlier: Any, later: Any) -> int:
    return code(cuda.cuGraphAddDependencies(graph, [earlier], [later], None, 1))


def launch_of(cuda: Any, function: Any) -> Any:
    wanted = cuda.CUDA_KERNEL_NODE_PARAMS()
    wanted.func = function
    wanted.gridDimX = wanted.gridDimY = wanted.gridDimZ = 1
    wanted.blockDimX = wanted.blockDimY = wanted.blockDimZ = 1
    return wanted


@contextmanager
def kernel_graph(cuda: Any, nodes: int) -> Iterator[tuple[Any, Any]]:
    """A graph of independent launches of one kernel, and what describes one of them."""
    with empty_kernel(cuda) as function, new_graph(cuda) as graph:
        wanted = launch_of(cuda, function)
        for _ in range(nodes):
            value(cuda.cuGraphAddKernelNode(graph, None, 0, wanted))
        yield graph, wanted


@probe(INVALID_VALUE)
def make_a_node_depend_on_itself(cuda: Any) -> int:
    with new_graph(cuda) as graph:
        node = add(cuda, graph)
        return connect(cuda, graph, node, node)


@probe(INVALID_VALUE)
def name_a_dependency_twice(cuda: Any) -> int:
    with new_graph(cuda) as graph:
        node = add(cuda, graph)
        return code(cuda.cuGraphAddEmptyNode(graph, [node, node], 2))


@probe(INVALID_VALUE)
def add_an_edge_twice(cuda: Any) -> int:
    with new_graph(cuda) as graph:
        first = add(cuda, graph)
        return connect(cuda, graph, first, add(cuda, graph, first))


@probe(INVALID_VALUE)
def remove_an_edge_that_is_not_there(cuda: Any) -> int:
    with new_graph(cuda) as graph:
        one, other = add(cuda, graph), add(cuda, graph)
        return code(cuda.cuGraphRemoveDependencies(graph, [one], [other], None, 1))


@probe(INVALID_VALUE)
def depend_on_a_node_of_another_graph(cuda: Any) -> int:
    with new_graph(cuda) as graph, new_graph(cuda) as other:
        return code(cuda.cuGraphAddEmptyNode(graph, [add(cuda, other)], 1))


@probe(SUCCESS, apart=True)
def close_a_circle(cuda: Any) -> int:
    with new_graph(cuda) as graph:
        first = add(cuda, graph)
        return connect(cuda, graph, add(cuda, graph, first), first)


@probe(INVALID_VALUE, apart=True)
def instantiate_after_closing_a_circle(cuda: Any) -> int:
    with new_graph(cuda) as graph:
        first = add(cuda, graph)
        connect(cuda, graph, add(cuda, graph, first), first)
        answer = cuda.cuGraphInstantiate(graph, 0)
        if code(answer) == SUCCESS:
            value(cuda.cuGraphExecDestroy(answer[1]))
        return code(answer)


@probe(SUCCESS)
def instantiate_an_empty_graph(cuda: Any) -> int:
    with new_graph(cuda) as graph:
        answer = cuda.cuGraphInstantiate(graph, 0)
        if code(answer) == SUCCESS:
            value(cuda.cuGraphExecDestroy(answer[1]))
        return code(answer)


@probe(INVALID_VALUE)
def instantiate_with_unknown_flags(cuda: Any) -> int:
    with new_graph(cuda) as graph:
        return code(cuda.cuGraphInstantiate(graph, 0x100))


@probe(INVALID_VALUE)
def give_an_empty_node_a_kernel(cuda: Any) -> int:
    with new_graph(cuda) as graph, empty_kernel(cuda) as function:
        return code(cuda.cuGraphKernelNodeSetParams(add(cuda, graph), launch_of(cuda, function)))


@probe(INVALID_VALUE)
def ask_an_empty_node_for_its_kernel(cuda: Any) -> int:
    with new_graph(cuda) as graph:
        return code(cuda.cuGraphKernelNodeGetParams(add(cuda, graph)))


@probe(INVALID_VALUE)
def add_a_kernel_of_no_blocks(cuda: Any) -> int:
    with kernel_graph(cuda, 0) as (graph, wanted):
        wanted.gridDimX = 0
        return code(cuda.cuGraphAddKernelNode(graph, None, 0, wanted))


@probe(UPDATE_FAILURE)
def update_from_a_graph_with_another_number_of_nodes(cuda: Any) -> int:
    with (
        kernel_graph(cuda, 1) as (one, _),
        kernel_graph(cuda, 2) as (two, _),
        instantiated(cuda, one) as made,
    ):
        return code(cuda.cuGraphExecUpdate(made, two))


class UpdateResult(ctypes.Structure):
    _fields_ = (("result", ctypes.c_int), ("node", ctypes.c_void_p), ("from_node", ctypes.c_void_p))


def update_result(cuda: Any, old: Any, new: Any) -> int:
    """Why an update was refused, a CUgraphExecUpdateResult: the bindings give it for those that succeed only."""
    result = UpdateResult(-1)
    with instantiated(cuda, old) as executable:
        update = ctypes.CDLL("libcuda.so.1").cuGraphExecUpdate_v2
        update(ctypes.c_void_p(int(executable)), ctypes.c_void_p(int(new)), ctypes.byref(result))
    return int(result.result)


@probe(2)
def why_another_number_of_nodes_is_refused(cuda: Any) -> int:
    with kernel_graph(cuda, 1) as (one, _), kernel_graph(cuda, 2) as (two, _):
        return update_result(cuda, one, two)


@probe(2)
def why_other_edges_are_refused(cuda: Any) -> int:
    with new_graph(cuda) as one, new_graph(cuda) as two:
        add(cuda, one)
        add(cuda, one)
        add(cuda, two, add(cuda, two))
        return update_result(cuda, one, two)


@probe(3)
def why_another_type_of_node_is_refused(cuda: Any) -> int:
    with kernel_graph(cuda, 1) as (one, _), new_graph(cuda) as two:
        add(cuda, two)
        return update_result(cuda, one, two)


@probe(0)
def what_an_update_that_fits_says(cuda: Any) -> int:
    with kernel_graph(cuda, 1) as (one, _), kernel_graph(cuda, 1) as (two, _):
        return update_result(cuda, one, two)
