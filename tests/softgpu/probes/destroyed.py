"""Handles of what is gone. NVIDIA's driver crashes on some: each runs in a process of its own there."""

from __future__ import annotations

from typing import Any

from tests.softgpu.calls import code, value
from tests.softgpu.probes.needs import MIB, MODULE, new_event, streamed
from tests.softgpu.probes.table import (
    CONTEXT_IS_DESTROYED,
    INVALID_CONTEXT,
    INVALID_HANDLE,
    INVALID_VALUE,
    probe,
)


def destroyed_stream(cuda: Any) -> Any:
    with streamed(cuda) as stream:
        return stream


def destroyed_event(cuda: Any) -> Any:
    with new_event(cuda) as event:
        return event


def destroyed_graph(cuda: Any) -> Any:
    graph = value(cuda.cuGraphCreate(0))
    value(cuda.cuGraphDestroy(graph))
    return graph


def destroyed_executable(cuda: Any) -> Any:
    graph = value(cuda.cuGraphCreate(0))
    value(cuda.cuGraphAddEmptyNode(graph, None, 0))
    executable = value(cuda.cuGraphInstantiate(graph, 0))
    value(cuda.cuGraphExecDestroy(executable))
    value(cuda.cuGraphDestroy(graph))
    return executable


def unloaded_module(cuda: Any) -> tuple[Any, Any]:
    """The module and a function of it."""
    module = value(cuda.cuModuleLoadData(MODULE))
    function = value(cuda.cuModuleGetFunction(module, b"empty"))
    value(cuda.cuModuleUnload(module))
    return module, function


def destroyed_context(cuda: Any) -> tuple[Any, Any]:
    """The context and a stream of it."""
    context = value(cuda.cuCtxCreate(None, 0, 0))
    stream = value(cuda.cuStreamCreate(0))
    value(cuda.cuCtxDestroy(context))
    return context, stream


def destroyed_pool(cuda: Any) -> Any:
    wanted = cuda.CUmemPoolProps()
    wanted.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    pool = value(cuda.cuMemPoolCreate(wanted))
    value(cuda.cuMemPoolDestroy(pool))
    return pool


@probe(INVALID_HANDLE, crashes=True)
def destroy_a_stream_twice(cuda: Any) -> int:
    return code(cuda.cuStreamDestroy(destroyed_stream(cuda)))


@probe(INVALID_HANDLE, crashes=True)
def query_a_destroyed_stream(cuda: Any) -> int:
    return code(cuda.cuStreamQuery(destroyed_stream(cuda)))


@probe(INVALID_HANDLE, crashes=True)
def put_work_into_a_destroyed_stream(cuda: Any) -> int:
    pointer = value(cuda.cuMemAlloc(MIB))
    result = code(cuda.cuMemsetD8Async(pointer, 1, 8, destroyed_stream(cuda)))
    cuda.cuMemFree(pointer)
    return result


@probe(CONTEXT_IS_DESTROYED, apart=True)
def destroy_an_event_twice(cuda: Any) -> int:
    return code(cuda.cuEventDestroy(destroyed_event(cuda)))


@probe(CONTEXT_IS_DESTROYED, apart=True)
def query_a_destroyed_event(cuda: Any) -> int:
    return code(cuda.cuEventQuery(destroyed_event(cuda)))


@probe(CONTEXT_IS_DESTROYED, apart=True)
def record_a_destroyed_event(cuda: Any) -> int:
    return code(cuda.cuEventRecord(destroyed_event(cuda), 0))


@probe(INVALID_VALUE, apart=True)
def destroy_a_graph_twice(cuda: Any) -> int:
    return code(cuda.cuGraphDestroy(destroyed_graph(cuda)))


@probe(INVALID_VALUE, apart=True)
def destroy_the_graph_of_a_child_node(cuda: Any) -> int:
    """It is the node's, and goes with it."""
    inner, outer = value(cuda.cuGraphCreate(0)), value(cuda.cuGraphCreate(0))
    node = value(cuda.cuGraphAddChildGraphNode(outer, None, 0, inner))
    return code(cuda.cuGraphDestroy(value(cuda.cuGraphChildGraphNodeGetGraph(node))))


@probe(INVALID_VALUE, apart=True)
def instantiate_a_destroyed_graph(cuda: Any) -> int:
    return code(cuda.cuGraphInstantiate(destroyed_graph(cuda), 0))


@probe(INVALID_VALUE, apart=True)
def destroy_an_executable_twice(cuda: Any) -> int:
    return code(cuda.cuGraphExecDestroy(destroyed_executable(cuda)))


@probe(INVALID_VALUE, apart=True)
def launch_a_destroyed_executable(cuda: Any) -> int:
    return code(cuda.cuGraphLaunch(destroyed_executable(cuda), 0))


@probe(INVALID_HANDLE, apart=True)
def unload_a_module_twice(cuda: Any) -> int:
    return code(cuda.cuModuleUnload(unloaded_module(cuda)[0]))


@probe(INVALID_HANDLE, apart=True)
def get_a_function_of_an_unloaded_module(cuda: Any) -> int:
    return code(cuda.cuModuleGetFunction(unloaded_module(cuda)[0], b"empty"))


@probe(INVALID_HANDLE, apart=True)
def launch_a_function_of_an_unloaded_module(cuda: Any) -> int:
    return code(cuda.cuLaunchKernel(unloaded_module(cuda)[1], 1, 1, 1, 1, 1, 1, 0, 0, 0, 0))


@probe(CONTEXT_IS_DESTROYED, apart=True)
def destroy_a_context_twice(cuda: Any) -> int:
    return code(cuda.cuCtxDestroy(destroyed_context(cuda)[0]))


@probe(INVALID_CONTEXT, crashes=True)
def make_a_destroyed_context_current(cuda: Any) -> int:
    return code(cuda.cuCtxSetCurrent(destroyed_context(cuda)[0]))


@probe(CONTEXT_IS_DESTROYED, apart=True)
def query_a_stream_of_a_destroyed_context(cuda: Any) -> int:
    return code(cuda.cuStreamQuery(destroyed_context(cuda)[1]))


@probe(INVALID_VALUE, apart=True)
def destroy_a_pool_twice(cuda: Any) -> int:
    return code(cuda.cuMemPoolDestroy(destroyed_pool(cuda)))


@probe(INVALID_VALUE, apart=True)
def allocate_from_a_destroyed_pool(cuda: Any) -> int:
    return code(cuda.cuMemAllocFromPoolAsync(MIB, destroyed_pool(cuda), 0))
