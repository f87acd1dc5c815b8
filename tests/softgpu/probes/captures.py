"""Stream capture: what may not be called meanwhile, and how a capture that was disturbed ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.softgpu.calls import code, value
from tests.softgpu.probes.needs import (
    MIB,
    NON_BLOCKING,
    allocated,
    in_thread,
    new_event,
    new_graph,
    streamed,
)
from tests.softgpu.probes.table import (
    CAPTURED_EVENT,
    ILLEGAL_STATE,
    IMPLICIT,
    INVALID_VALUE,
    INVALIDATED,
    ISOLATION,
    MERGE,
    SUCCESS,
    UNJOINED,
    UNMATCHED,
    UNSUPPORTED,
    WRONG_THREAD,
    enter,
    probe,
)

GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2
LEGACY = 1


def begin(cuda: Any, stream: Any, mode: int) -> int:
    return code(cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode(mode)))


def end(cuda: Any, stream: Any) -> int:
    answer = cuda.cuStreamEndCapture(stream)
    if code(answer) == SUCCESS:
        value(cuda.cuGraphDestroy(answer[1]))
    return code(answer)


@contextmanager
def capturing(cuda: Any, mode: int, flags: int = NON_BLOCKING) -> Iterator[Any]:
    """A stream that captures; the capture ends, in whatever state it is."""
    with streamed(cuda, flags) as stream:
        assert begin(cuda, stream, mode) == SUCCESS
        try:
            yield stream
        finally:
            end(cuda, stream)


@contextmanager
def forked(cuda: Any, stream: Any) -> Iterator[Any]:
    """A second stream that a capture has drawn in."""
    with streamed(cuda, NON_BLOCKING) as side, new_event(cuda) as event:
        value(cuda.cuEventRecord(event, stream))
        value(cuda.cuStreamWaitEvent(side, event, 0))
        yield side
        end(cuda, stream)


def allocate(cuda: Any) -> int:
    answer = cuda.cuMemAlloc(MIB)
    if code(answer) == SUCCESS:
        mode = value(cuda.cuThreadExchangeStreamCaptureMode(cuda.CUstreamCaptureMode(RELAXED)))
        value(cuda.cuMemFree(answer[1]))
        value(cuda.cuThreadExchangeStreamCaptureMode(mode))
    return code(answer)


def elsewhere(cuda: Any, call: Any) -> int:
    """A call in another thread, in the same context."""
    context = value(cuda.cuCtxGetCurrent())

    def run() -> int:
        value(cuda.cuCtxSetCurrent(context))
        return int(call())

    return in_thread(run)


# ---- begin and end ---------------------------------------------------------------------------------------------------


@probe(UNSUPPORTED)
def begin_on_the_null_stream(cuda: Any) -> int:
    return begin(cuda, 0, GLOBAL)


@probe(UNSUPPORTED)
def begin_on_the_legacy_stream(cuda: Any) -> int:
    return begin(cuda, LEGACY, RELAXED)


@probe(ILLEGAL_STATE)
def begin_twice(cuda: Any) -> int:
    with capturing(cuda, GLOBAL) as stream:
        return begin(cuda, stream, GLOBAL)


@probe(SUCCESS)
def end_after_begin_twice(cuda: Any) -> int:
    with capturing(cuda, GLOBAL) as stream:
        begin(cuda, stream, GLOBAL)
        return end(cuda, stream)


@probe(ILLEGAL_STATE)
def end_without_begin(cuda: Any) -> int:
    with streamed(cuda) as stream:
        return end(cuda, stream)


@probe(UNMATCHED)
def end_on_a_side_stream(cuda: Any) -> int:
    with capturing(cuda, RELAXED) as stream, forked(cuda, stream) as side:
        return end(cuda, side)


@probe(INVALIDATED)
def end_after_an_end_on_a_side_stream(cuda: Any) -> int:
    with capturing(cuda, RELAXED) as stream, forked(cuda, stream) as side:
        end(cuda, side)
        return end(cuda, stream)


@probe(UNJOINED)
def end_with_an_unjoined_fork(cuda: Any) -> int:
    with capturing(cuda, RELAXED) as stream, allocated(cuda) as pointer, forked(cuda, stream) as side:
        value(cuda.cuMemsetD8Async(pointer, 1, 8, side))
        return end(cuda, stream)


@probe(SUCCESS)
def end_with_a_fork_that_did_nothing(cuda: Any) -> int:
    with capturing(cuda, RELAXED) as stream, forked(cuda, stream):
        return end(cuda, stream)


@probe(WRONG_THREAD)
def end_a_global_capture_in_another_thread(cuda: Any) -> int:
    with capturing(cuda, GLOBAL) as stream:
        return elsewhere(cuda, lambda: end(cuda, stream))


@probe(WRONG_THREAD)
def end_a_thread_local_capture_in_another_thread(cuda: Any) -> int:
    with capturing(cuda, THREAD_LOCAL) as stream:
        return elsewhere(cuda, lambda: end(cuda, stream))


@probe(SUCCESS)
def end_a_relaxed_capture_in_another_thread(cuda: Any) -> int:
    with capturing(cuda, RELAXED) as stream:
        return elsewhere(cuda, lambda: end(cuda, stream))


@probe(ILLEGAL_STATE)
def end_after_another_thread_tried(cuda: Any) -> int:
    with capturing(cuda, GLOBAL) as stream:
        elsewhere(cuda, lambda: end(cuda, stream))
        return end(cuda, stream)


@probe(SUCCESS, apart=True)
def destroy_a_capturing_stream(cuda: Any) -> int:
    stream = value(cuda.cuStreamCreate(NON_BLOCKING))
    assert begin(cuda, stream, RELAXED) == SUCCESS
    return code(cuda.cuStreamDestroy(stream))


# ---- calls while a stream captures -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Meanwhile:
    """What a call can be about: a stream that captures, one that does not, an event and some memory."""

    cuda: Any
    stream: Any
    other: Any
    event: Any
    pointer: int

    def captured_event(self) -> Any:
        value(self.cuda.cuEventRecord(self.event, self.stream))
        return self.event


def while_capturing(
    name: str,
    mode: int,
    call: Callable[[Any, Meanwhile], int],
    expected: int,
    then: int | None = None,
    in_another_thread: bool = False,
    flags: int = NON_BLOCKING,
) -> None:
    """Enters a call, and where `then` is given, how the capture ends afterwards."""

    def ask(cuda: Any, ended: bool) -> int:
        with (
            allocated(cuda) as pointer,
            streamed(cuda, NON_BLOCKING) as other,
            new_event(cuda) as event,
            capturing(cuda, mode, flags) as stream,
        ):
            at = Meanwhile(cuda, stream, other, event, pointer)
            answer = elsewhere(cuda, lambda: call(cuda, at)) if in_another_thread else call(cuda, at)
            return end(cuda, stream) if ended else answer

    enter(name, expected, lambda cuda: ask(cuda, False))
    if then is not None:
        enter(f"{name}_and_end", then, lambda cuda: ask(cuda, True))


def query(cuda: Any, at: Meanwhile) -> int:
    return code(cuda.cuStreamQuery(at.stream))


def query_other(cuda: Any, at: Meanwhile) -> int:
    return code(cuda.cuStreamQuery(at.other))


def legacy_work(cuda: Any, at: Meanwhile) -> int:
    return code(cuda.cuMemsetD8Async(at.pointer, 1, 8, 0))


def copy(cuda: Any, at: Meanwhile) -> int:
    return code(cuda.cuMemcpyHtoD(at.pointer, b"12345678", 8))


def allocate_there(cuda: Any, at: Meanwhile) -> int:
    return allocate(cuda)


def work_after_a_query(cuda: Any, at: Meanwhile) -> int:
    query(cuda, at)
    return code(cuda.cuMemsetD8Async(at.pointer, 1, 8, at.stream))


while_capturing("query_a_capturing_stream", RELAXED, query, UNSUPPORTED, INVALIDATED)
while_capturing(
    "synchronize_a_capturing_stream",
    RELAXED,
    lambda cuda, at: code(cuda.cuStreamSynchronize(at.stream)),
    UNSUPPORTED,
    INVALIDATED,
)
while_capturing("work_in_a_capture_that_is_invalid", RELAXED, work_after_a_query, INVALIDATED)
while_capturing("query_another_stream_globally", GLOBAL, query_other, UNSUPPORTED, INVALIDATED)
while_capturing("query_another_stream_elsewhere", GLOBAL, query_other, UNSUPPORTED, in_another_thread=True)
while_capturing(
    "synchronize_another_stream_globally",
    GLOBAL,
    lambda cuda, at: code(cuda.cuStreamSynchronize(at.other)),
    UNSUPPORTED,
)
while_capturing("query_another_stream_relaxed", RELAXED, query_other, SUCCESS)
while_capturing(
    "query_an_event_globally", GLOBAL, lambda cuda, at: code(cuda.cuEventQuery(at.event)), UNSUPPORTED
)
while_capturing(
    "query_a_captured_event",
    RELAXED,
    lambda cuda, at: code(cuda.cuEventQuery(at.captured_event())),
    CAPTURED_EVENT,
    INVALIDATED,
)
while_capturing(
    "synchronize_with_a_captured_event",
    RELAXED,
    lambda cuda, at: code(cuda.cuEventSynchronize(at.captured_event())),
    CAPTURED_EVENT,
)
while_capturing(
    "synchronize_the_context_globally", GLOBAL, lambda cuda, at: code(cuda.cuCtxSynchronize()), UNSUPPORTED
)
while_capturing(
    "synchronize_the_context_relaxed",
    RELAXED,
    lambda cuda, at: code(cuda.cuCtxSynchronize()),
    UNSUPPORTED,
    INVALIDATED,
)
while_capturing("legacy_work_beside_a_blocking_stream", RELAXED, legacy_work, IMPLICIT, INVALIDATED, flags=0)
while_capturing("legacy_work_beside_a_non_blocking_stream", RELAXED, legacy_work, SUCCESS)
while_capturing(
    "state_of_the_legacy_stream",
    RELAXED,
    lambda cuda, at: code(cuda.cuStreamIsCapturing(0)),
    IMPLICIT,
    flags=0,
)
while_capturing("copy_globally", GLOBAL, copy, SUCCESS, SUCCESS)
while_capturing("copy_relaxed", RELAXED, copy, SUCCESS)
while_capturing("allocate_globally", GLOBAL, allocate_there, UNSUPPORTED, INVALIDATED)
while_capturing("allocate_elsewhere", GLOBAL, allocate_there, UNSUPPORTED, in_another_thread=True)
while_capturing("allocate_thread_locally", THREAD_LOCAL, allocate_there, UNSUPPORTED)
while_capturing(
    "allocate_elsewhere_beside_a_thread_local_capture",
    THREAD_LOCAL,
    allocate_there,
    SUCCESS,
    in_another_thread=True,
)
while_capturing("allocate_relaxed", RELAXED, allocate_there, SUCCESS)


@probe(INVALID_VALUE)
def query_an_event_whose_capture_ended(cuda: Any) -> int:
    with capturing(cuda, RELAXED) as stream, new_event(cuda) as event:
        value(cuda.cuEventRecord(event, stream))
        end(cuda, stream)
        return code(cuda.cuEventQuery(event))


@probe(UNSUPPORTED)
def free_during_a_global_capture(cuda: Any) -> int:
    pointer = value(cuda.cuMemAlloc(MIB))
    with capturing(cuda, GLOBAL):
        result = code(cuda.cuMemFree(pointer))
    if result != SUCCESS:
        value(cuda.cuMemFree(pointer))
    return result


@probe(UNSUPPORTED)
def allocate_host_memory_during_a_global_capture(cuda: Any) -> int:
    with capturing(cuda, GLOBAL):
        answer = cuda.cuMemHostAlloc(4096, 0)
    if code(answer) == SUCCESS:
        value(cuda.cuMemFreeHost(answer[1]))
    return code(answer)


# ---- events between captures -----------------------------------------------------------------------------------------


@probe(INVALID_VALUE)
def wait_for_an_event_whose_capture_ended(cuda: Any) -> int:
    with capturing(cuda, RELAXED) as stream, new_event(cuda) as event:
        value(cuda.cuEventRecord(event, stream))
        end(cuda, stream)
        return code(cuda.cuStreamWaitEvent(stream, event, 0))


@probe(ISOLATION)
def wait_in_a_capture_for_an_event_from_outside(cuda: Any) -> int:
    with streamed(cuda) as other, new_event(cuda) as event:
        value(cuda.cuEventRecord(event, other))
        with capturing(cuda, RELAXED) as stream:
            return code(cuda.cuStreamWaitEvent(stream, event, 0))


@probe(SUCCESS)
def wait_in_a_capture_for_an_event_never_recorded(cuda: Any) -> int:
    with new_event(cuda) as event, capturing(cuda, RELAXED) as stream:
        return code(cuda.cuStreamWaitEvent(stream, event, 0))


@probe(MERGE)
def wait_in_a_capture_for_an_event_of_another(cuda: Any) -> int:
    with capturing(cuda, RELAXED) as one, capturing(cuda, RELAXED) as other, new_event(cuda) as event:
        value(cuda.cuEventRecord(event, one))
        return code(cuda.cuStreamWaitEvent(other, event, 0))


@probe(UNSUPPORTED)
def launch_a_graph_into_a_capture(cuda: Any) -> int:
    with new_graph(cuda) as graph:
        value(cuda.cuGraphAddEmptyNode(graph, None, 0))
        executable = value(cuda.cuGraphInstantiate(graph, 0))
        with capturing(cuda, GLOBAL) as stream:
            result = code(cuda.cuGraphLaunch(executable, stream))
        value(cuda.cuGraphExecDestroy(executable))
        return result
