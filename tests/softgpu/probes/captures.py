"""Stream capture: what may not be called meanwhile, and how a capture that was disturbed ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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


# ---- asking for the state of work ------------------------------------------------------------------------------------


@probe(UNSUPPORTED)
def query_a_capturing_stream(cuda: Any) -> int:
    with capturing(cuda, RELAXED) as stream:
        return code(cuda.cuStreamQuery(stream))


@probe(UNSUPPORTED)
def synchronize_a_capturing_stream(cuda: Any) -> int:
    with capturing(cuda, RELAXED) as stream:
        return code(cuda.cuStreamSynchronize(stream))


@probe(INVALIDATED)
def end_after_a_query_of_the_stream(cuda: Any) -> int:
    with capturing(cuda, RELAXED) as stream:
        cuda.cuStreamQuery(stream)
        return end(cuda, stream)


@probe(INVALIDATED)
def end_after_a_synchronize_of_the_stream(cuda: Any) -> int:
    with capturing(cuda, RELAXED) as stream:
        cuda.cuStreamSynchronize(stream)
        return end(cuda, stream)


@probe(UNSUPPORTED)
def query_another_stream_during_a_global_capture(cuda: Any) -> int:
    with streamed(cuda, NON_BLOCKING) as other, capturing(cuda, GLOBAL):
        return code(cuda.cuStreamQuery(other))


@probe(INVALIDATED)
def end_a_global_capture_after_a_query_of_another_stream(cuda: Any) -> int:
    with streamed(cuda, NON_BLOCKING) as other, capturing(cuda, GLOBAL) as stream:
        cuda.cuStreamQuery(other)
        return end(cuda, stream)


@probe(UNSUPPORTED)
def query_another_stream_in_another_thread_during_a_global_capture(cuda: Any) -> int:
    with streamed(cuda, NON_BLOCKING) as other, capturing(cuda, GLOBAL):
        return elsewhere(cuda, lambda: code(cuda.cuStreamQuery(other)))


@probe(UNSUPPORTED)
def synchronize_another_stream_during_a_global_capture(cuda: Any) -> int:
    with streamed(cuda, NON_BLOCKING) as other, capturing(cuda, GLOBAL):
        return code(cuda.cuStreamSynchronize(other))


@probe(SUCCESS)
def query_another_stream_during_a_relaxed_capture(cuda: Any) -> int:
    with streamed(cuda, NON_BLOCKING) as other, capturing(cuda, RELAXED):
        return code(cuda.cuStreamQuery(other))


@probe(UNSUPPORTED)
def query_an_event_during_a_global_capture(cuda: Any) -> int:
    with new_event(cuda) as event, capturing(cuda, GLOBAL):
        return code(cuda.cuEventQuery(event))


@probe(CAPTURED_EVENT)
def query_a_captured_event(cuda: Any) -> int:
    with capturing(cuda, RELAXED) as stream, new_event(cuda) as event:
        value(cuda.cuEventRecord(event, stream))
        return code(cuda.cuEventQuery(event))


@probe(CAPTURED_EVENT)
def synchronize_with_a_captured_event(cuda: Any) -> int:
    with capturing(cuda, RELAXED) as stream, new_event(cuda) as event:
        value(cuda.cuEventRecord(event, stream))
        return code(cuda.cuEventSynchronize(event))


@probe(INVALIDATED)
def end_after_a_query_of_a_captured_event(cuda: Any) -> int:
    with capturing(cuda, RELAXED) as stream, new_event(cuda) as event:
        value(cuda.cuEventRecord(event, stream))
        cuda.cuEventQuery(event)
        return end(cuda, stream)


@probe(INVALID_VALUE)
def query_an_event_whose_capture_ended(cuda: Any) -> int:
    with capturing(cuda, RELAXED) as stream, new_event(cuda) as event:
        value(cuda.cuEventRecord(event, stream))
        end(cuda, stream)
        return code(cuda.cuEventQuery(event))


@probe(INVALID_VALUE)
def synchronize_with_an_event_whose_capture_ended(cuda: Any) -> int:
    with capturing(cuda, RELAXED) as stream, new_event(cuda) as event:
        value(cuda.cuEventRecord(event, stream))
        end(cuda, stream)
        return code(cuda.cuEventSynchronize(event))


@probe(UNSUPPORTED)
def synchronize_the_context_during_a_global_capture(cuda: Any) -> int:
    with capturing(cuda, GLOBAL):
        return code(cuda.cuCtxSynchronize())


@probe(UNSUPPORTED)
def synchronize_the_context_during_a_relaxed_capture(cuda: Any) -> int:
    with capturing(cuda, RELAXED):
        return code(cuda.cuCtxSynchronize())


@probe(INVALIDATED)
def end_after_synchronizing_the_context(cuda: Any) -> int:
    with capturing(cuda, RELAXED) as stream:
        cuda.cuCtxSynchronize()
        return end(cuda, stream)


# ---- other work meanwhile --------------------------------------------------------------------------------------------


@probe(IMPLICIT)
def legacy_work_during_a_capture_of_a_blocking_stream(cuda: Any) -> int:
    with allocated(cuda) as pointer, capturing(cuda, RELAXED, flags=0):
        return code(cuda.cuMemsetD8Async(pointer, 1, 8, 0))


@probe(INVALIDATED)
def end_after_legacy_work(cuda: Any) -> int:
    with allocated(cuda) as pointer, capturing(cuda, RELAXED, flags=0) as stream:
        cuda.cuMemsetD8Async(pointer, 1, 8, 0)
        return end(cuda, stream)


@probe(SUCCESS)
def legacy_work_during_a_capture_of_a_non_blocking_stream(cuda: Any) -> int:
    with allocated(cuda) as pointer, capturing(cuda, RELAXED):
        return code(cuda.cuMemsetD8Async(pointer, 1, 8, 0))


@probe(IMPLICIT)
def state_of_the_legacy_stream_during_a_capture_of_a_blocking_stream(cuda: Any) -> int:
    with capturing(cuda, RELAXED, flags=0):
        return code(cuda.cuStreamIsCapturing(0))


@probe(SUCCESS)
def copy_during_a_global_capture(cuda: Any) -> int:
    with allocated(cuda) as pointer, capturing(cuda, GLOBAL):
        return code(cuda.cuMemcpyHtoD(pointer, b"12345678", 8))


@probe(SUCCESS)
def copy_during_a_relaxed_capture(cuda: Any) -> int:
    with allocated(cuda) as pointer, capturing(cuda, RELAXED):
        return code(cuda.cuMemcpyHtoD(pointer, b"12345678", 8))


@probe(UNSUPPORTED)
def allocate_during_a_global_capture(cuda: Any) -> int:
    with capturing(cuda, GLOBAL):
        return allocate(cuda)


@probe(INVALIDATED)
def end_after_an_allocation(cuda: Any) -> int:
    with capturing(cuda, GLOBAL) as stream:
        allocate(cuda)
        return end(cuda, stream)


@probe(UNSUPPORTED)
def allocate_in_another_thread_during_a_global_capture(cuda: Any) -> int:
    with capturing(cuda, GLOBAL):
        return elsewhere(cuda, lambda: allocate(cuda))


@probe(UNSUPPORTED)
def allocate_during_a_thread_local_capture(cuda: Any) -> int:
    with capturing(cuda, THREAD_LOCAL):
        return allocate(cuda)


@probe(SUCCESS)
def allocate_in_another_thread_during_a_thread_local_capture(cuda: Any) -> int:
    with capturing(cuda, THREAD_LOCAL):
        return elsewhere(cuda, lambda: allocate(cuda))


@probe(SUCCESS)
def allocate_during_a_relaxed_capture(cuda: Any) -> int:
    with capturing(cuda, RELAXED):
        return allocate(cuda)


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
