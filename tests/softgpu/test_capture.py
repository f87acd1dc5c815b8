"""Stream capture: what becomes a graph, what may not be called meanwhile, and how captures fail."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.softgpu.calls import code, download, value

ILLEGAL_STATE = 401
UNSUPPORTED, INVALIDATED, MERGE, UNMATCHED, UNJOINED, ISOLATION, IMPLICIT, CAPTURED_EVENT, WRONG_THREAD = (
    range(900, 909)
)
NON_BLOCKING = 1
GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2


def begin(cuda: Any, stream: Any, mode: int = GLOBAL) -> None:
    value(cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode(mode)))


def status(cuda: Any, stream: Any) -> int:
    return int(value(cuda.cuStreamIsCapturing(stream)))


def in_thread(call: Callable[[], int]) -> int:
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(call()))
    thread.start()
    thread.join(30)
    return answers[0]


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


def test_an_unjoined_fork_is_refused(
    cuda: Any, stream: Any, new_stream: Callable[..., Any], new_event: Callable[..., Any], buffer: Any
) -> None:
    side, fork = new_stream(NON_BLOCKING), new_event()
    begin(cuda, stream)
    value(cuda.cuEventRecord(fork, stream))
    value(cuda.cuStreamWaitEvent(side, fork, 0))
    value(cuda.cuMemsetD8Async(buffer, 1, 4, side))
    assert code(cuda.cuStreamEndCapture(side)) == UNMATCHED
    assert code(cuda.cuStreamEndCapture(stream)) in (UNJOINED, INVALIDATED)
    assert status(cuda, stream) == status(cuda, side) == 0


@pytest.mark.parametrize("call", ["cuStreamQuery", "cuStreamSynchronize"])
def test_asking_a_capturing_stream_ends_the_capture(cuda: Any, stream: Any, buffer: Any, call: str) -> None:
    begin(cuda, stream, RELAXED)
    assert code(getattr(cuda, call)(stream)) == UNSUPPORTED
    assert status(cuda, stream) == 2
    assert code(cuda.cuMemsetD8Async(buffer, 1, 4, stream)) == INVALIDATED
    assert code(cuda.cuStreamEndCapture(stream)) == INVALIDATED
    assert status(cuda, stream) == 0


@pytest.mark.parametrize("call", ["cuEventQuery", "cuEventSynchronize"])
def test_asking_a_captured_event_ends_the_capture(
    cuda: Any, stream: Any, new_event: Callable[..., Any], call: str
) -> None:
    event = new_event()
    begin(cuda, stream, RELAXED)
    value(cuda.cuEventRecord(event, stream))
    assert code(getattr(cuda, call)(event)) == CAPTURED_EVENT
    assert code(cuda.cuStreamEndCapture(stream)) == INVALIDATED


def test_an_unsafe_call_ends_a_global_capture(cuda: Any, stream: Any) -> None:
    begin(cuda, stream, GLOBAL)
    assert code(cuda.cuMemAlloc(4096)) == UNSUPPORTED
    assert code(cuda.cuStreamEndCapture(stream)) == INVALIDATED


def test_a_copy_beside_a_global_capture_leaves_it_alone(cuda: Any, stream: Any, buffer: Any) -> None:
    begin(cuda, stream, GLOBAL)
    value(cuda.cuMemcpyHtoD(buffer, b"beside", 6))
    value(cuda.cuGraphDestroy(value(cuda.cuStreamEndCapture(stream))))
    assert download(cuda, buffer, 6) == b"beside"


def test_an_unsafe_call_of_another_thread_ends_a_global_capture_only(
    cuda: Any, context: Any, stream: Any
) -> None:
    def allocate() -> int:
        value(cuda.cuCtxSetCurrent(context))
        answer = cuda.cuMemAlloc(4096)
        if code(answer) == 0:
            value(cuda.cuMemFree(answer[1]))
        return code(answer)

    begin(cuda, stream, GLOBAL)
    assert in_thread(allocate) == UNSUPPORTED
    assert code(cuda.cuStreamEndCapture(stream)) == INVALIDATED
    begin(cuda, stream, THREAD_LOCAL)
    assert in_thread(allocate) == 0
    value(cuda.cuGraphDestroy(value(cuda.cuStreamEndCapture(stream))))


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


def test_the_legacy_stream_cannot_capture_nor_wait_for_a_capture(
    cuda: Any, context: Any, new_stream: Callable[..., Any], buffer: Any
) -> None:
    blocking = new_stream()
    assert code(cuda.cuStreamBeginCapture(0, cuda.CUstreamCaptureMode(GLOBAL))) == UNSUPPORTED
    begin(cuda, blocking)
    assert code(cuda.cuMemsetD8Async(buffer, 1, 4, 0)) == IMPLICIT
    assert code(cuda.cuStreamEndCapture(blocking)) == INVALIDATED


def test_a_capture_is_ended_by_its_thread(cuda: Any, context: Any, stream: Any) -> None:
    def end() -> int:
        value(cuda.cuCtxSetCurrent(context))
        return code(cuda.cuStreamEndCapture(stream))

    begin(cuda, stream, THREAD_LOCAL)
    assert in_thread(end) == WRONG_THREAD
    assert status(cuda, stream) == 0
    assert code(cuda.cuStreamEndCapture(stream)) == ILLEGAL_STATE
    begin(cuda, stream, RELAXED)
    assert in_thread(end) == 0


def test_captures_keep_apart(
    cuda: Any, stream: Any, new_stream: Callable[..., Any], new_event: Callable[..., Any]
) -> None:
    other, inside, outside = new_stream(NON_BLOCKING), new_event(), new_event()
    value(cuda.cuEventRecord(outside, other))
    begin(cuda, stream)
    assert code(cuda.cuStreamWaitEvent(stream, outside, 0)) == ISOLATION
    assert code(cuda.cuStreamEndCapture(stream)) == INVALIDATED
    begin(cuda, stream)
    begin(cuda, other)
    value(cuda.cuEventRecord(inside, stream))
    assert code(cuda.cuStreamWaitEvent(other, inside, 0)) == MERGE
    assert code(cuda.cuStreamEndCapture(stream)) == INVALIDATED
    assert code(cuda.cuStreamEndCapture(other)) == INVALIDATED


def test_begin_and_end_come_in_pairs(cuda: Any, stream: Any) -> None:
    assert code(cuda.cuStreamEndCapture(stream)) == ILLEGAL_STATE
    begin(cuda, stream)
    assert code(cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode(GLOBAL))) == ILLEGAL_STATE
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


def test_a_graph_launched_into_a_capture_ends_it(cuda: Any, stream: Any, buffer: Any) -> None:
    begin(cuda, stream)
    value(cuda.cuMemsetD8Async(buffer, 4, 4, stream))
    inner = value(cuda.cuStreamEndCapture(stream))
    executable = value(cuda.cuGraphInstantiate(inner, 0))
    begin(cuda, stream)
    assert code(cuda.cuGraphLaunch(executable, stream)) == UNSUPPORTED
    assert code(cuda.cuStreamEndCapture(stream)) == INVALIDATED
    value(cuda.cuGraphLaunch(executable, stream))
    value(cuda.cuStreamSynchronize(stream))
    assert download(cuda, buffer, 4) == b"\4" * 4
    value(cuda.cuGraphExecDestroy(executable))
    value(cuda.cuGraphDestroy(inner))


def test_external_events_are_real_ones(
    cuda: Any,
    stream: Any,
    new_stream: Callable[..., Any],
    new_event: Callable[..., Any],
    buffer: Any,
    gate: Any,
) -> None:
    other, before, after = new_stream(NON_BLOCKING), new_event(), new_event()
    begin(cuda, stream)
    value(cuda.cuStreamWaitEvent(stream, before, 1))
    value(cuda.cuMemsetD8Async(buffer, 5, 4, stream))
    value(cuda.cuEventRecordWithFlags(after, stream, 1))
    graph = value(cuda.cuStreamEndCapture(stream))
    executable = value(cuda.cuGraphInstantiate(graph, 0))
    gate.hold(other)
    value(cuda.cuEventRecord(before, other))
    value(cuda.cuGraphLaunch(executable, stream))
    gate.settle()
    assert code(cuda.cuEventQuery(after)) == 600
    gate.open()
    value(cuda.cuEventSynchronize(after))
    assert download(cuda, buffer, 4) == b"\5" * 4
    value(cuda.cuGraphExecDestroy(executable))
    value(cuda.cuGraphDestroy(graph))
