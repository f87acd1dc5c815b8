"""Graphs built by hand: nodes, edges, launches, updates."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from tests.softgpu.calls import code, download, upload, value
from tests.softgpu.launching import launch, parameters

INVALID_VALUE, NOT_READY, NOT_SUPPORTED, UPDATE_FAILURE = 1, 600, 801, 910


@pytest.fixture
def stream(new_stream: Callable[..., Any]) -> Any:
    return new_stream()


@pytest.fixture
def graph(cuda: Any, context: Any) -> Iterator[Any]:
    made = value(cuda.cuGraphCreate(0))
    yield made
    cuda.cuGraphDestroy(made)


class Builder:
    """Adds nodes to a graph; `after` names nodes."""

    def __init__(self, cuda: Any, context: Any, graph: Any) -> None:
        self.cuda, self.context, self.graph = cuda, context, graph

    def fill_of(self, pointer: Any, number: int, count: int) -> Any:
        wanted = self.cuda.CUDA_MEMSET_NODE_PARAMS()
        wanted.dst, wanted.value, wanted.elementSize = int(pointer), number, 1
        wanted.width, wanted.height = count, 1
        return wanted

    def fill(self, pointer: Any, number: int, count: int, *after: Any) -> Any:
        wanted = self.fill_of(pointer, number, count)
        return value(
            self.cuda.cuGraphAddMemsetNode(self.graph, list(after), len(after), wanted, self.context)
        )

    def copy_of(self, target: Any, source: Any, count: int) -> Any:
        wanted = self.cuda.CUDA_MEMCPY3D()
        device = self.cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
        wanted.srcMemoryType = wanted.dstMemoryType = device
        wanted.srcDevice, wanted.dstDevice = int(source), int(target)
        wanted.WidthInBytes, wanted.Height, wanted.Depth = count, 1, 1
        return wanted

    def copy(self, target: Any, source: Any, count: int, *after: Any) -> Any:
        wanted = self.copy_of(target, source, count)
        return value(
            self.cuda.cuGraphAddMemcpyNode(self.graph, list(after), len(after), wanted, self.context)
        )

    def kernel_of(self, function: Any, params: Any) -> Any:
        wanted = self.cuda.CUDA_KERNEL_NODE_PARAMS()
        wanted.func = function
        wanted.gridDimX, wanted.gridDimY, wanted.gridDimZ = 4, 1, 1
        wanted.blockDimX, wanted.blockDimY, wanted.blockDimZ = 32, 1, 1
        wanted.kernelParams = params
        return wanted

    def kernel(self, function: Any, params: Any, *after: Any) -> Any:
        wanted = self.kernel_of(function, params)
        return value(self.cuda.cuGraphAddKernelNode(self.graph, list(after), len(after), wanted))

    def hold(self, gate: Any, *after: Any) -> Any:
        cuda = self.cuda
        one = cuda.CUstreamBatchMemOpParams()
        one.operation = one.waitValue.operation = cuda.CUstreamBatchMemOpType.CU_STREAM_MEM_OP_WAIT_VALUE_32
        one.waitValue.address, one.waitValue.value = gate.address, cuda.cuuint32_t(1)
        one.waitValue.flags = cuda.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ
        wanted = cuda.CUDA_BATCH_MEM_OP_NODE_PARAMS()
        wanted.ctx, wanted.count, wanted.paramArray, wanted.flags = self.context, 1, [one], 0
        return value(cuda.cuGraphAddBatchMemOpNode(self.graph, list(after), len(after), wanted))

    def empty(self, *after: Any) -> Any:
        return value(self.cuda.cuGraphAddEmptyNode(self.graph, list(after), len(after)))


@pytest.fixture
def build(cuda: Any, context: Any, graph: Any) -> Builder:
    return Builder(cuda, context, graph)


@pytest.fixture
def instantiate(cuda: Any, context: Any) -> Iterator[Callable[[Any], Any]]:
    made = []

    def make(graph: Any) -> Any:
        made.append(value(cuda.cuGraphInstantiate(graph, 0)))
        return made[-1]

    yield make
    for executable in made:
        cuda.cuGraphExecDestroy(executable)


class Bench(NamedTuple):
    """What most tests here need: an empty graph, what builds and instantiates it, and where it runs."""

    context: Any
    graph: Any
    build: Builder
    instantiate: Callable[[Any], Any]
    stream: Any
    buffer: Any


@pytest.fixture
def bench(
    context: Any, graph: Any, build: Builder, instantiate: Callable[[Any], Any], stream: Any, buffer: Any
) -> Bench:
    return Bench(context, graph, build, instantiate, stream, buffer)


def run(cuda: Any, executable: Any, stream: Any) -> None:
    value(cuda.cuGraphLaunch(executable, stream))
    value(cuda.cuStreamSynchronize(stream))


def test_nodes_run_after_what_they_depend_on(
    cuda: Any, graph: Any, build: Builder, instantiate: Callable[[Any], Any], stream: Any, buffer: Any
) -> None:
    base = int(buffer)
    last = build.fill(base, 1, 64)
    for i in range(40):  # more branches than the device has lanes
        build.fill(base + i, i + 2, 1, last)
    nodes, count = value(cuda.cuGraphGetNodes(graph, 64))
    join = build.empty(*nodes[1:count])
    build.copy(base + 128, base, 64, join)
    executable = instantiate(graph)
    for _ in range(3):
        value(cuda.cuMemsetD8Async(buffer, 0, 256, stream))
        run(cuda, executable, stream)
        assert download(cuda, base + 128, 64) == bytes(range(2, 42)) + b"\1" * 24


def test_a_launch_is_one_operation_of_its_stream(cuda: Any, bench: Bench, gate: Any) -> None:
    _, graph, build, instantiate, stream, buffer = bench
    base = int(buffer)
    build.fill(base, 1, 4)
    build.fill(base + 4, 1, 4)
    executable = instantiate(graph)
    gate.hold(stream)
    value(cuda.cuGraphLaunch(executable, stream))
    value(cuda.cuMemsetD8Async(base + 2, 2, 4, stream))
    gate.settle()
    assert code(cuda.cuStreamQuery(stream)) == NOT_READY
    assert download_quietly(cuda, base, 8) == bytes(8)
    gate.open()
    value(cuda.cuStreamSynchronize(stream))
    assert download(cuda, base, 8) == b"\1\1\2\2\2\2\1\1"


def download_quietly(cuda: Any, pointer: int, count: int) -> bytes:
    """By a stream that waits for no other."""
    stream = value(cuda.cuStreamCreate(1))
    data = bytearray(count)
    value(cuda.cuMemcpyDtoHAsync(data, pointer, count, stream))
    value(cuda.cuStreamSynchronize(stream))
    value(cuda.cuStreamDestroy(stream))
    return bytes(data)


def test_launches_of_one_graph_follow_each_other(
    cuda: Any, bench: Bench, new_stream: Callable[..., Any], gate: Any
) -> None:
    _, graph, build, instantiate, _, buffer = bench
    held, free = new_stream(1), new_stream(1)
    build.fill(buffer, 1, 4)
    executable = instantiate(graph)
    gate.hold(held)
    value(cuda.cuGraphLaunch(executable, held))
    value(cuda.cuGraphLaunch(executable, free))
    gate.settle()
    assert code(cuda.cuStreamQuery(free)) == NOT_READY
    gate.open()
    value(cuda.cuStreamSynchronize(free))


def test_kernel_nodes_keep_their_parameters(cuda: Any, bench: Bench, kernels: Callable[[str], Any]) -> None:
    _, graph, build, instantiate, stream, buffer = bench
    fill = kernels("fill")
    node = build.kernel(fill, parameters("fill", buffer, 1.0, 4))
    got = value(cuda.cuGraphKernelNodeGetParams(node))
    assert int(got.func) == int(fill) and got.gridDimX == 4
    executable = instantiate(graph)
    value(cuda.cuGraphKernelNodeSetParams(node, build.kernel_of(fill, parameters("fill", buffer, 2.0, 4))))
    run(cuda, executable, stream)
    assert struct.unpack("4f", download(cuda, buffer, 16)) == (1.0,) * 4
    value(
        cuda.cuGraphExecKernelNodeSetParams(
            executable, node, build.kernel_of(fill, parameters("fill", buffer, 3.0, 4))
        )
    )
    run(cuda, executable, stream)
    assert struct.unpack("4f", download(cuda, buffer, 16)) == (3.0,) * 4


def test_copies_and_fills_of_an_executable_can_be_changed(cuda: Any, bench: Bench) -> None:
    context, graph, build, instantiate, stream, buffer = bench
    base = int(buffer)
    fill = build.fill(base, 1, 4)
    copy = build.copy(base + 64, base, 4, fill)
    executable = instantiate(graph)
    value(cuda.cuGraphExecMemsetNodeSetParams(executable, fill, build.fill_of(base, 8, 4), context))
    value(cuda.cuGraphExecMemcpyNodeSetParams(executable, copy, build.copy_of(base + 96, base, 4), context))
    run(cuda, executable, stream)
    assert download(cuda, base + 96, 4) == b"\x08" * 4
    assert download(cuda, base + 64, 4) == bytes(4)
    assert (
        code(cuda.cuGraphExecMemsetNodeSetParams(executable, copy, build.fill_of(base, 8, 4), context)) != 0
    )


def test_wrong_parameters_for_an_executable_are_refused_and_change_nothing(
    cuda: Any, bench: Bench, kernels: Callable[[str], Any]
) -> None:
    _, graph, build, instantiate, stream, buffer = bench
    kernel = build.kernel(kernels("fill"), parameters("fill", buffer, 3.0, 4))
    executable = instantiate(graph)
    wrong = build.kernel_of(kernels("fill"), parameters("fill", buffer, 5.0, 4))
    wrong.blockDimX = 4096
    assert code(cuda.cuGraphExecKernelNodeSetParams(executable, kernel, wrong)) == INVALID_VALUE
    wrong.blockDimX, wrong.gridDimY = 32, 0
    assert code(cuda.cuGraphExecKernelNodeSetParams(executable, kernel, wrong)) == INVALID_VALUE
    run(cuda, executable, stream)
    assert struct.unpack("4f", download(cuda, buffer, 16)) == (3.0,) * 4
    child = value(cuda.cuGraphAddChildGraphNode(graph, [kernel], 1, value(cuda.cuGraphCreate(0))))
    executable = instantiate(graph)
    assert code(cuda.cuGraphExecChildGraphNodeSetParams(executable, child, None)) == INVALID_VALUE
    run(cuda, executable, stream)


def test_nodes_can_be_switched_off(
    cuda: Any, graph: Any, build: Builder, instantiate: Callable[[Any], Any], stream: Any, buffer: Any
) -> None:
    node = build.fill(buffer, 1, 4)
    build.fill(int(buffer) + 4, 1, 4, node)
    executable = instantiate(graph)
    value(cuda.cuGraphNodeSetEnabled(executable, node, 0))
    assert value(cuda.cuGraphNodeGetEnabled(executable, node)) == 0
    run(cuda, executable, stream)
    assert download(cuda, buffer, 8) == bytes(4) + b"\1" * 4


def test_captured_host_functions_run_in_order_at_each_launch(
    cuda: Any, instantiate: Callable[[Any], Any], stream: Any
) -> None:
    seen: list[int] = []
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: seen.append(int(data)))
    host = cuda.CUhostFn(_ptr=ctypes.addressof(function))
    value(cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    for data in (5, 6):
        value(cuda.cuLaunchHostFunc(stream, host, data))
    captured = value(cuda.cuStreamEndCapture(stream))
    executable = instantiate(captured)
    assert seen == []
    run(cuda, executable, stream)
    run(cuda, executable, stream)
    assert seen == [5, 6, 5, 6]
    value(cuda.cuGraphDestroy(captured))


def test_a_gate_inside_a_graph(cuda: Any, bench: Bench, gate: Any) -> None:
    _, graph, build, instantiate, stream, buffer = bench
    first = build.fill(buffer, 1, 4)
    hold = build.hold(gate, first)
    build.fill(int(buffer) + 4, 2, 4, hold)
    value(cuda.cuGraphLaunch(instantiate(graph), stream))
    gate.settle()
    assert code(cuda.cuStreamQuery(stream)) == NOT_READY
    gate.open()
    value(cuda.cuStreamSynchronize(stream))
    assert download(cuda, buffer, 8) == b"\1" * 4 + b"\2" * 4


def test_a_join_waits_for_every_branch(cuda: Any, bench: Bench, gate: Any) -> None:
    _, graph, build, instantiate, stream, buffer = bench
    base = int(buffer)
    root = build.empty()
    quick = build.fill(base, 1, 4, root)
    held = build.fill(base + 4, 2, 4, build.hold(gate, root))
    build.copy(base + 16, base, 8, quick, held)
    value(cuda.cuGraphLaunch(instantiate(graph), stream))
    gate.settle()
    assert download_quietly(cuda, base, 24) == b"\1" * 4 + bytes(20)
    gate.open()
    value(cuda.cuStreamSynchronize(stream))
    assert download(cuda, base + 16, 8) == b"\1" * 4 + b"\2" * 4


def test_child_graphs_run_in_their_place(cuda: Any, bench: Bench) -> None:
    context, graph, build, instantiate, stream, buffer = bench
    base = int(buffer)
    inner = Builder(cuda, context, value(cuda.cuGraphCreate(0)))
    inner.fill(base, 2, 4)
    inner.fill(base + 4, 3, 4)
    first = build.fill(base, 1, 16)
    child = value(cuda.cuGraphAddChildGraphNode(graph, [first], 1, inner.graph))
    build.copy(base + 64, base, 16, child)
    inner.fill(base + 8, 9, 4)  # too late: the node has a copy
    value(cuda.cuGraphDestroy(inner.graph))
    held = value(cuda.cuGraphChildGraphNodeGetGraph(child))
    assert value(cuda.cuGraphGetNodes(held, 10))[1] == 2
    run(cuda, instantiate(graph), stream)
    assert download(cuda, base + 64, 16) == b"\2" * 4 + b"\3" * 4 + b"\1" * 8


def nodes_before(cuda: Any, node: Any) -> int:
    return int(value(cuda.cuGraphNodeGetDependencies(node))[-1])


def test_edges_come_and_go(cuda: Any, graph: Any, build: Builder) -> None:
    a, b, c = build.empty(), build.empty(), build.empty()
    value(cuda.cuGraphAddDependencies(graph, [a, b], [b, c], None, 2))
    assert [nodes_before(cuda, node) for node in (a, b, c)] == [0, 1, 1]
    value(cuda.cuGraphRemoveDependencies(graph, [a], [b], None, 1))
    assert [nodes_before(cuda, node) for node in (a, b, c)] == [0, 0, 1]
    value(cuda.cuGraphDestroyNode(b))
    assert [nodes_before(cuda, node) for node in (a, c)] == [0, 0]
    assert value(cuda.cuGraphGetNodes(graph))[1] == 2


def test_a_clone_stands_alone(cuda: Any, bench: Bench) -> None:
    _, graph, build, instantiate, stream, buffer = bench
    node = build.fill(buffer, 1, 4)
    clone = value(cuda.cuGraphClone(graph))
    twin = value(cuda.cuGraphNodeFindInClone(node, clone))
    assert int(twin) != int(node)
    value(cuda.cuGraphMemsetNodeSetParams(twin, build.fill_of(buffer, 2, 4)))
    run(cuda, instantiate(graph), stream)
    assert download(cuda, buffer, 4) == b"\1" * 4
    run(cuda, instantiate(clone), stream)
    assert download(cuda, buffer, 4) == b"\2" * 4
    value(cuda.cuGraphDestroy(clone))


def test_an_executable_takes_over_a_graph_of_its_shape(cuda: Any, bench: Bench) -> None:
    context, graph, build, instantiate, stream, buffer = bench
    base = int(buffer)
    first = build.fill(base, 1, 4)
    build.copy(base + 8, base, 4, first)
    executable = instantiate(graph)
    same = Builder(cuda, context, value(cuda.cuGraphCreate(0)))
    same.copy(base + 16, base, 4, same.fill(base, 5, 4))
    value(cuda.cuGraphExecUpdate(executable, same.graph))
    run(cuda, executable, stream)
    assert download(cuda, base, 20) == b"\5" * 4 + bytes(12) + b"\5" * 4

    result = cuda.CUgraphExecUpdateResult
    other = Builder(cuda, context, value(cuda.cuGraphCreate(0)))
    other.fill(base, 5, 4)
    other.copy(base + 16, base, 4)
    answer = cuda.cuGraphExecUpdate(executable, other.graph)
    assert code(answer) == UPDATE_FAILURE
    wrong = Builder(cuda, context, value(cuda.cuGraphCreate(0)))
    wrong.fill(base + 16, 5, 4, wrong.fill(base, 5, 4))
    assert code(cuda.cuGraphExecUpdate(executable, wrong.graph)) == UPDATE_FAILURE
    assert result.CU_GRAPH_EXEC_UPDATE_SUCCESS == 0
    for made in (same, other, wrong):
        value(cuda.cuGraphDestroy(made.graph))


def test_an_update_goes_into_child_graphs(cuda: Any, bench: Bench) -> None:
    context, _, _, instantiate, stream, buffer = bench
    base = int(buffer)

    def inner(*numbers: int) -> Any:
        made = Builder(cuda, context, value(cuda.cuGraphCreate(0)))
        for place, number in enumerate(numbers):
            made.fill(base + 8 * place, number, 4)
        return made.graph

    def outer(child: Any) -> Any:
        made = value(cuda.cuGraphCreate(0))
        return made, value(cuda.cuGraphAddChildGraphNode(made, None, 0, child))

    (first, node), (same, _), (other, _) = (outer(inner(*numbers)) for numbers in ((1, 2), (3, 4), (5,)))
    executable = instantiate(first)
    value(cuda.cuGraphExecUpdate(executable, same))
    run(cuda, executable, stream)
    assert download(cuda, base, 12) == b"\3" * 4 + bytes(4) + b"\4" * 4
    assert code(cuda.cuGraphExecUpdate(executable, other)) == UPDATE_FAILURE
    value(cuda.cuGraphExecChildGraphNodeSetParams(executable, node, inner(6, 7)))
    run(cuda, executable, stream)
    assert download(cuda, base, 12) == b"\6" * 4 + bytes(4) + b"\7" * 4
    assert code(cuda.cuGraphExecChildGraphNodeSetParams(executable, node, inner(8))) == UPDATE_FAILURE
    run(cuda, executable, stream)
    assert download(cuda, base, 12) == b"\6" * 4 + bytes(4) + b"\7" * 4


def test_an_update_that_turns_edges_round_is_refused(cuda: Any, bench: Bench) -> None:
    """Two nodes after one, one of them after the other: their numbers of edges are alike, and what they join is not."""
    context, _, _, instantiate, _, buffer = bench
    base = int(buffer)

    def made(joined: bool) -> Any:
        at = Builder(cuda, context, value(cuda.cuGraphCreate(0)))
        roots = [at.fill(base + 8 * i, i, 4) for i in range(2)]
        middle = [at.fill(base + 16 + 8 * i, i, 4, roots[0 if joined else i]) for i in range(2)]
        at.fill(base + 32, 1, 4, *middle)
        at.fill(base + 40, 1, 4, *roots)
        return at.graph

    executable = instantiate(made(joined=False))
    assert code(cuda.cuGraphExecUpdate(executable, made(joined=True))) == UPDATE_FAILURE
    value(cuda.cuGraphExecUpdate(executable, made(joined=False)))


def test_nodes_can_be_made_and_changed_by_their_general_parameters(
    cuda: Any, bench: Bench, kernels: Callable[[str], Any]
) -> None:
    context, graph, build, instantiate, stream, buffer = bench
    base, types = int(buffer), cuda.CUgraphNodeType

    def general(kind: str, **parts: Any) -> Any:
        wanted = cuda.CUgraphNodeParams()
        wanted.type = getattr(types, f"CU_GRAPH_NODE_TYPE_{kind}")
        for name, part in parts.items():
            setattr(wanted, name, part)
        return wanted

    def fill(number: int) -> Any:
        one = cuda.CUDA_MEMSET_NODE_PARAMS_v2()
        one.dst, one.value, one.elementSize, one.width, one.height, one.ctx = base, number, 1, 4, 1, context
        return general("MEMSET", memset=one)

    def copy(to: int) -> Any:
        one = cuda.CUDA_MEMCPY_NODE_PARAMS()
        one.copyCtx, one.copyParams = context, build.copy_of(to, base, 4)
        return general("MEMCPY", memcpy=one)

    def add(params: Any, *after: Any) -> Any:
        return value(cuda.cuGraphAddNode(graph, list(after), None, len(after), params))

    filled = add(fill(1))
    copied = add(copy(base + 8), filled)
    inner = Builder(cuda, context, value(cuda.cuGraphCreate(0)))
    inner.fill(base + 32, 9, 4)
    child = cuda.CUDA_CHILD_GRAPH_NODE_PARAMS()
    child.graph = inner.graph
    add(general("GRAPH", graph=child), copied)
    executable = instantiate(graph)
    run(cuda, executable, stream)
    assert download(cuda, base, 12) == b"\1" * 4 + bytes(4) + b"\1" * 4
    assert download(cuda, base + 32, 4) == b"\t" * 4
    value(cuda.cuGraphExecNodeSetParams(executable, filled, fill(2)))
    value(cuda.cuGraphExecNodeSetParams(executable, copied, copy(base + 16)))
    run(cuda, executable, stream)
    assert download(cuda, base + 8, 12) == b"\1" * 4 + bytes(4) + b"\2" * 4
    assert code(cuda.cuGraphExecNodeSetParams(executable, filled, copy(base))) == INVALID_VALUE
    assert code(cuda.cuGraphExecNodeSetParams(executable, filled, general("HOST"))) == NOT_SUPPORTED


def test_instantiating_tells_how_it_went(cuda: Any, bench: Bench) -> None:
    _, graph, build, _, stream, buffer = bench
    build.fill(buffer, 4, 4)
    asked = cuda.CUDA_GRAPH_INSTANTIATE_PARAMS()
    asked.flags = int(cuda.CUgraphInstantiate_flags.CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)
    asked.hUploadStream = stream
    executable = value(cuda.cuGraphInstantiateWithParams(graph, asked))
    assert (int(asked.result_out), int(asked.hErrNode_out)) == (0, 0)
    value(cuda.cuGraphUpload(executable, stream))
    run(cuda, executable, stream)
    assert download(cuda, buffer, 4) == b"\4" * 4
    value(cuda.cuGraphExecDestroy(executable))
    assert (
        code(cuda.cuGraphExecDestroy(executable))
        == code(cuda.cuGraphUpload(executable, stream))
        == INVALID_VALUE
    )
    asked.flags = 1 << 20
    assert code(cuda.cuGraphInstantiateWithParams(graph, asked)) == INVALID_VALUE


def test_an_update_goes_by_edges_not_by_when_nodes_were_added(
    cuda: Any, context: Any, instantiate: Callable[[Any], Any], stream: Any, buffer: Any
) -> None:
    base = int(buffer)

    def fork(number: int, copy_first: bool) -> Any:
        at = Builder(cuda, context, value(cuda.cuGraphCreate(0)))
        first = at.fill(base, number, 16)
        copied = at.copy(base + 32, base, 16, first) if copy_first else None
        filled = at.fill(base + 16, number + 1, 16, first)
        copied = copied or at.copy(base + 32, base, 16, first)
        at.copy(base + 64, base, 48, filled, copied)
        return at.graph

    graphs = [fork(1, True), fork(3, False)]
    executable = instantiate(graphs[0])
    value(cuda.cuGraphExecUpdate(executable, graphs[1]))
    run(cuda, executable, stream)
    assert download(cuda, base + 64, 48) == b"\3" * 16 + b"\4" * 16 + b"\3" * 16
    for graph in graphs:
        value(cuda.cuGraphDestroy(graph))


def test_nodes_of_child_graphs_are_found_in_the_clones_child_graph(
    cuda: Any, context: Any, graph: Any, build: Builder, buffer: Any
) -> None:
    inner = Builder(cuda, context, value(cuda.cuGraphCreate(0)))
    inner.fill(buffer, 2, 4)
    child = value(cuda.cuGraphAddChildGraphNode(graph, None, 0, inner.graph))
    nodes, _ = value(cuda.cuGraphGetNodes(value(cuda.cuGraphChildGraphNodeGetGraph(child)), 1))
    clone = value(cuda.cuGraphClone(graph))
    childs_clone = value(cuda.cuGraphChildGraphNodeGetGraph(value(cuda.cuGraphNodeFindInClone(child, clone))))
    assert code(cuda.cuGraphNodeFindInClone(nodes[0], clone)) == INVALID_VALUE
    twin = value(cuda.cuGraphNodeFindInClone(nodes[0], childs_clone))
    assert int(twin) == int(value(cuda.cuGraphGetNodes(childs_clone, 1))[0][0])
    for made in (inner.graph, clone):
        value(cuda.cuGraphDestroy(made))


@pytest.mark.parametrize("condition", [0, 1])
def test_a_conditional_body_runs_or_does_not(cuda: Any, bench: Bench, condition: int) -> None:
    context, graph, build, instantiate, stream, buffer = bench
    base = int(buffer)
    wanted = cuda.CUgraphNodeParams()
    wanted.type = cuda.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
    wanted.conditional.handle = value(cuda.cuGraphConditionalHandleCreate(graph, context, condition, 1))
    wanted.conditional.type = cuda.CUgraphConditionalNodeType.CU_GRAPH_COND_TYPE_IF
    wanted.conditional.size, wanted.conditional.ctx = 1, context
    first = build.fill(base, 1, 8)
    node = value(cuda.cuGraphAddNode(graph, [first], None, 1, wanted))
    assert value(cuda.cuGraphNodeGetType(node)) == wanted.type
    Builder(cuda, context, wanted.conditional.phGraph_out[0]).fill(base, 2, 4)
    build.copy(base + 8, base, 8, node)
    assert code(cuda.cuGraphClone(graph)) == NOT_SUPPORTED
    run(cuda, instantiate(graph), stream)
    assert download(cuda, base + 8, 8) == (b"\2" if condition else b"\1") * 4 + b"\1" * 4


def test_an_executable_may_go_while_it_runs(
    cuda: Any, graph: Any, build: Builder, stream: Any, buffer: Any, gate: Any
) -> None:
    build.fill(buffer, 1, 4)
    build.fill(int(buffer) + 4, 2, 4)
    executable = value(cuda.cuGraphInstantiate(graph, 0))
    gate.hold(stream)
    value(cuda.cuGraphLaunch(executable, stream))
    value(cuda.cuGraphExecDestroy(executable))
    gate.open()
    value(cuda.cuStreamSynchronize(stream))
    assert download(cuda, buffer, 8) == b"\1" * 4 + b"\2" * 4


def test_a_captured_pipeline_gives_the_same_bits_as_its_launches(
    cuda: Any, bench: Bench, kernels: Callable[[str], Any]
) -> None:
    _, _, _, instantiate, stream, buffer = bench
    base = int(buffer)

    def steps() -> None:
        launch(cuda, kernels("add"), stream, parameters("add", base + 1024, base, base + 512, 128))
        launch(cuda, kernels("scale"), stream, parameters("scale", base + 2048, base + 1024, 0.3, 128))

    upload(cuda, base, struct.pack("256f", *(i * 0.37 for i in range(256))))
    steps()
    value(cuda.cuStreamSynchronize(stream))
    plain = download(cuda, base, 4096)
    value(cuda.cuMemsetD8(base + 1024, 0, 3072))
    value(cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode(0)))
    steps()
    captured = value(cuda.cuStreamEndCapture(stream))
    run(cuda, instantiate(captured), stream)
    assert download(cuda, base, 4096) == plain
    value(cuda.cuGraphDestroy(captured))


def test_memory_of_a_graph(cuda: Any, bench: Bench) -> None:
    _, graph, build, instantiate, stream, buffer = bench
    wanted = cuda.CUDA_MEM_ALLOC_NODE_PARAMS()
    wanted.poolProps.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.poolProps.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    wanted.bytesize = 4096
    allocate = value(cuda.cuGraphAddMemAllocNode(graph, None, 0, wanted))
    scratch = value(cuda.cuGraphMemAllocNodeGetParams(allocate)).dptr
    fill = build.fill(scratch, 9, 16, allocate)
    copy = build.copy(buffer, scratch, 16, fill)
    free = value(cuda.cuGraphAddMemFreeNode(graph, [copy], 1, scratch))
    assert int(value(cuda.cuGraphMemFreeNodeGetParams(free))) == int(scratch)
    assert value(cuda.cuGraphNodeGetType(free)) == cuda.CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEM_FREE
    executable = instantiate(graph)
    for _ in range(2):
        run(cuda, executable, stream)
    assert download(cuda, buffer, 16) == b"\t" * 16
