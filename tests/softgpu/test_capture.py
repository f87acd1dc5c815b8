"""Stream capture: what becomes a graph, what may not be called meanwhile, and how captures fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.softgpu.calls import code, download, value
from tests.softgpu.launching import launch
from tests.softgpu.probes.needs import in_thread

NON_BLOCKING = 1
GLOBAL, RELAXED = 0, 2


def begin(cuda: Any, stream: Any, mode: int = GLOBAL) -> None:
    value(cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode(mode)))


def status(cuda: Any, stream: Any) -> int:
    return int(value(cuda.cuStreamIsCapturing(stream)))


def run(cuda: Any, graph: Any, stream: Any) -> None:
    executable = value(cuda.cuGraphInstantiate(graph, 0))
    value(cuda.cuGraphLaunch(executable, stream))
    value(cuda.cuStreamSynchronize(stream))
    value(cuda.cuGraphExecDestroy(executable))
    value(cuda.cuGraphDestroy(graph))


@pytest.fixture
def stream(new_stream: Callable[..., Any]) -> Any:
    return new_stream(NON_BLOCKING)


def test_captured_work_runs_when_the_graph_is_launched(cuda: Any, stream: Any, buffer: Any) -> None:
    begin(cuda, stream)
    assert status(cuda, stream) == 1
    value(cuda.cuMemsetD8Async(buffer, 1, 8, stream))
    value(cuda.cuMemcpyDtoDAsync(int(buffer) + 16, buffer, 8, stream))
    graph = value(cuda.cuStreamEndCapture(stream))
    assert status(cuda, stream) == 0
    assert download(cuda, buffer, 24) == bytes(24)
    run(cuda, graph, stream)
    assert download(cuda, buffer, 24) == b"\1" * 8 + bytes(8) + b"\1" * 8


def test_captured_nodes_tell_what_they_are(
    cuda: Any, stream: Any, buffer: Any, kernels: Callable[[str], Any]
) -> None:
    begin(cuda, stream)
    value(cuda.cuMemsetD8Async(buffer, 1, 8, stream))
    launch(cuda, kernels("nothing"), stream)
    value(cuda.cuMemcpyDtoDAsync(int(buffer) + 16, buffer, 8, stream))
    graph = value(cuda.cuStreamEndCapture(stream))
    nodes, count = value(cuda.cuGraphGetNodes(graph, 10))
    types = [value(cuda.cuGraphNodeGetType(node)).name for node in nodes[:count]]
    assert types == [f"CU_GRAPH_NODE_TYPE_{name}" for name in ("MEMSET", "KERNEL", "MEMCPY")]
    value(cuda.cuGraphDestroy(graph))


def nodes_before(cuda: Any, node: Any, places: dict[int, int]) -> set[int]:
    nodes, _, count = value(cuda.cuGraphNodeGetDependencies(node, 10))
    return {places[int(one)] for one in nodes[:count]}


def test_streams_join_through_events(
    cuda: Any, stream: Any, new_stream: Callable[..., Any], new_event: Callable[..., Any], buffer: Any
) -> None:
    side, fork, join = new_stream(NON_BLOCKING), new_event(), new_event()
    begin(cuda, stream)
    value(cuda.cuMemsetD8Async(buffer, 1, 8, stream))
    value(cuda.cuEventRecord(fork, stream))
    value(cuda.cuStreamWaitEvent(side, fork, 0))
    assert status(cuda, side) == 1
    value(cuda.cuMemsetD8Async(buffer, 2, 4, side))
    value(cuda.cuMemsetD8Async(int(buffer) + 8, 3, 4, stream))
    value(cuda.cuEventRecord(join, side))
    value(cuda.cuStreamWaitEvent(stream, join, 0))
    value(cuda.cuMemcpyDtoDAsync(int(buffer) + 16, buffer, 12, stream))
    graph = value(cuda.cuStreamEndCapture(stream))
    assert status(cuda, side) == 0
    nodes, count = value(cuda.cuGraphGetNodes(graph, 10))
    assert count == 4
    places = {int(node): i for i, node in enumerate(nodes[:count])}
    assert [nodes_before(cuda, node, places) for node in nodes[:count]] == [set(), {0}, {0}, {1, 2}]
    run(cuda, graph, stream)
    assert download(cuda, int(buffer) + 16, 12) == b"\2" * 4 + b"\1" * 4 + b"\3" * 4


def test_a_thread_in_relaxed_mode_may_query_other_streams(
    cuda: Any, context: Any, stream: Any, new_stream: Callable[..., Any], new_event: Callable[..., Any]
) -> None:
    other, event = new_stream(NON_BLOCKING), new_event()

    def ask() -> int:
        value(cuda.cuCtxSetCurrent(context))
        before = value(cuda.cuThreadExchangeStreamCaptureMode(cuda.CUstreamCaptureMode(RELAXED)))
        assert int(before) == GLOBAL
        return code(cuda.cuStreamQuery(other)) + code(cuda.cuEventQuery(event))

    begin(cuda, stream, GLOBAL)
    assert in_thread(ask) == 0
    value(cuda.cuGraphDestroy(value(cuda.cuStreamEndCapture(stream))))


def test_a_capture_goes_on_in_a_given_graph(cuda: Any, stream: Any, buffer: Any) -> None:
    graph = value(cuda.cuGraphCreate(0))
    root = value(cuda.cuGraphAddEmptyNode(graph, None, 0))
    mode = cuda.CUstreamCaptureMode(GLOBAL)
    value(cuda.cuStreamBeginCaptureToGraph(stream, graph, [root], None, 1, mode))
    value(cuda.cuMemsetD8Async(buffer, 6, 4, stream))
    assert int(value(cuda.cuStreamEndCapture(stream))) == int(graph)
    nodes, _ = value(cuda.cuGraphGetNodes(graph, 2))
    assert nodes_before(cuda, nodes[1], {int(root): 0}) == {0}
    run(cuda, graph, stream)
    assert download(cuda, buffer, 4) == b"\6" * 4
