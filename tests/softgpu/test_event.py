"""Events: points of streams, waits between them, and time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tests.softgpu.calls import code, download, value
from tests.softgpu.launching import launch, parameters

INVALID_VALUE, INVALID_HANDLE, NOT_READY = 1, 400, 600
DISABLE_TIMING, INTERPROCESS = 2, 4


def test_an_event_is_done_when_its_stream_got_there(
    cuda: Any, new_stream: Callable[..., Any], new_event: Callable[..., Any], gate: Any
) -> None:
    stream, event = new_stream(), new_event()
    assert code(cuda.cuEventQuery(event)) == 0
    value(cuda.cuEventSynchronize(event))
    gate.hold(stream)
    value(cuda.cuEventRecord(event, stream))
    gate.settle()
    assert code(cuda.cuEventQuery(event)) == NOT_READY
    gate.open()
    value(cuda.cuEventSynchronize(event))
    assert code(cuda.cuEventQuery(event)) == 0


def test_a_stream_waits_for_an_event_of_another(
    cuda: Any, new_stream: Callable[..., Any], new_event: Callable[..., Any], buffer: Any, gate: Any
) -> None:
    first, second, event = new_stream(), new_stream(), new_event()
    gate.hold(first)
    value(cuda.cuMemsetD8Async(buffer, 1, 8, first))
    value(cuda.cuEventRecord(event, first))
    value(cuda.cuStreamWaitEvent(second, event, 0))
    value(cuda.cuMemsetD8Async(buffer, 2, 4, second))
    gate.settle()
    assert code(cuda.cuStreamQuery(second)) == NOT_READY
    gate.open()
    value(cuda.cuStreamSynchronize(second))
    assert download(cuda, buffer, 8) == b"\2" * 4 + b"\1" * 4


def test_a_wait_means_the_record_that_was_there(
    cuda: Any, new_stream: Callable[..., Any], new_event: Callable[..., Any], gate: Any
) -> None:
    done, held, waiting, event = new_stream(), new_stream(), new_stream(), new_event()
    value(cuda.cuEventRecord(event, done))
    value(cuda.cuStreamWaitEvent(waiting, event, 0))
    gate.hold(held)
    value(cuda.cuEventRecord(event, held))
    value(cuda.cuStreamSynchronize(waiting))
    gate.settle()
    assert code(cuda.cuEventQuery(event)) == NOT_READY


def test_a_wait_across_contexts(
    cuda: Any, context: Any, new_stream: Callable[..., Any], new_event: Callable[..., Any], gate: Any
) -> None:
    event = new_event()
    stream = new_stream()
    gate.hold(stream)
    value(cuda.cuEventRecord(event, stream))
    made = value(cuda.cuCtxCreate(None, 0, 0))
    other = value(cuda.cuStreamCreate(0))
    value(cuda.cuStreamWaitEvent(other, event, 0))
    gate.settle()
    assert code(cuda.cuStreamQuery(other)) == NOT_READY
    assert code(cuda.cuEventRecord(event, other)) == INVALID_HANDLE
    gate.open()
    value(cuda.cuStreamSynchronize(other))
    value(cuda.cuCtxDestroy(made))


def test_elapsed_time_is_modelled_time(
    cuda: Any, new_stream: Callable[..., Any], new_event: Callable[..., Any], kernels: Callable[[str], Any]
) -> None:
    stream, start, end = new_stream(), new_event(), new_event()
    launch(cuda, kernels("nothing"), stream)
    value(cuda.cuEventRecord(start, stream))
    for _ in range(10):
        launch(cuda, kernels("spin"), stream, parameters("spin", 3000))
    value(cuda.cuEventRecord(end, stream))
    value(cuda.cuEventSynchronize(end))
    # Late wake-ups do not stretch it; what the calling thread lost between its first calls does.
    assert 29.9 < value(cuda.cuEventElapsedTime(start, end)) < 300


def test_a_thread_that_waits_for_an_event_holds_up_no_other(
    cuda: Any,
    context: Any,
    new_stream: Callable[..., Any],
    new_event: Callable[..., Any],
    buffer: Any,
    gate: Any,
) -> None:
    stream, event = new_stream(), new_event()
    gate.hold(stream)
    value(cuda.cuEventRecord(event, stream))
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(code(cuda.cuEventSynchronize(event))))
    thread.start()
    free = new_stream(1)
    value(cuda.cuMemsetD8Async(buffer, 1, 4, free))
    value(cuda.cuStreamSynchronize(free))
    gate.open()
    thread.join(30)
    assert answers == [0]


def test_a_context_that_was_waited_for_has_recorded_its_events(
    cuda: Any, context: Any, new_event: Callable[..., Any]
) -> None:
    event = new_event()
    for _ in range(300):
        value(cuda.cuCtxRecordEvent(context, event))
        value(cuda.cuCtxSynchronize())
        assert code(cuda.cuEventQuery(event)) == 0
