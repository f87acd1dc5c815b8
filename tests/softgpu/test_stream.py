"""Streams: order within, order between, and the default ones."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

from tests.softgpu.calls import code, download, value
from tests.waiting import wait_for

INVALID_VALUE, INVALID_CONTEXT, INVALID_HANDLE, NOT_READY = 1, 201, 400, 600
NON_BLOCKING = 1
LEGACY, PER_THREAD = 1, 2


def test_work_is_done_when_the_stream_says_so(
    cuda: Any, new_stream: Callable[..., Any], buffer: Any, gate: Any
) -> None:
    stream = new_stream()
    assert code(cuda.cuStreamQuery(stream)) == 0
    gate.hold(stream)
    value(cuda.cuMemsetD8Async(buffer, 7, 16, stream))
    gate.settle()
    assert code(cuda.cuStreamQuery(stream)) == NOT_READY
    gate.open()
    value(cuda.cuStreamSynchronize(stream))
    assert code(cuda.cuStreamQuery(stream)) == 0
    assert download(cuda, buffer, 16) == b"\7" * 16


def test_a_destroyed_stream_is_unknown_but_finishes(cuda: Any, context: Any, buffer: Any, gate: Any) -> None:
    stream = value(cuda.cuStreamCreate(NON_BLOCKING))
    gate.hold(stream)
    value(cuda.cuMemsetD8Async(buffer, 9, 16, stream))
    value(cuda.cuStreamDestroy(stream))
    gate.open()
    value(cuda.cuCtxSynchronize())
    assert download(cuda, buffer, 16) == b"\t" * 16


def test_the_legacy_stream_waits_for_blocking_streams_and_they_for_it(
    cuda: Any, new_stream: Callable[..., Any], buffer: Any, gate: Any
) -> None:
    first, second, free = new_stream(), new_stream(), new_stream(NON_BLOCKING)
    gate.hold(first)
    value(cuda.cuMemsetD8Async(buffer, 1, 16, 0))
    value(cuda.cuMemsetD8Async(buffer, 2, 8, second))
    value(cuda.cuMemsetD8Async(int(buffer) + 64, 3, 8, free))
    value(cuda.cuStreamSynchronize(free))
    gate.settle()
    assert code(cuda.cuStreamQuery(0)) == NOT_READY
    assert code(cuda.cuStreamQuery(LEGACY)) == NOT_READY
    assert code(cuda.cuStreamQuery(second)) == NOT_READY
    assert code(cuda.cuStreamQuery(free)) == 0
    gate.open()
    value(cuda.cuStreamSynchronize(second))
    assert download(cuda, buffer, 16) == b"\2" * 8 + b"\1" * 8


def test_blocking_streams_do_not_wait_for_each_other(
    cuda: Any, new_stream: Callable[..., Any], gate: Any
) -> None:
    gate.hold(new_stream())
    value(cuda.cuStreamSynchronize(new_stream()))


def test_each_thread_has_a_default_stream_of_its_own(cuda: Any, context: Any, buffer: Any, gate: Any) -> None:
    gate.hold(PER_THREAD)
    done: list[bool] = []

    def other() -> None:
        value(cuda.cuCtxSetCurrent(context))
        value(cuda.cuMemsetD8Async(buffer, 5, 4, PER_THREAD))
        value(cuda.cuStreamSynchronize(PER_THREAD))
        done.append(True)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join(30)
    assert done
    gate.settle()
    assert code(cuda.cuStreamQuery(PER_THREAD)) == NOT_READY


def test_streams_tell_what_they_are(cuda: Any, context: Any, new_stream: Callable[..., Any]) -> None:
    stream = new_stream(NON_BLOCKING, -2)
    assert value(cuda.cuStreamGetPriority(stream)) == -2
    assert value(cuda.cuStreamGetFlags(stream)) == NON_BLOCKING
    assert value(cuda.cuStreamGetFlags(new_stream(0, 0))) == 0
    assert int(value(cuda.cuStreamGetCtx(stream))) == int(context)
    assert (
        value(cuda.cuStreamGetPriority(new_stream(0, -100))) == value(cuda.cuCtxGetStreamPriorityRange())[1]
    )
    assert value(cuda.cuStreamGetPriority(new_stream(0, 100))) == 0
    assert code(cuda.cuStreamCreate(0x80)) == INVALID_VALUE


def test_host_functions_run_in_order(
    cuda: Any, new_stream: Callable[..., Any], buffer: Any, gate: Any
) -> None:
    stream = new_stream()
    seen: list[int] = []
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    first, second = kind(lambda _: seen.append(1)), kind(lambda _: seen.append(2))
    gate.hold(stream)
    for function in (first, second):
        host = cuda.CUhostFn(_ptr=ctypes.addressof(function))
        value(cuda.cuLaunchHostFunc(stream, host, 0))
    gate.settle()
    assert seen == []
    gate.open()
    value(cuda.cuStreamSynchronize(stream))
    assert seen == [1, 2]


def test_many_threads_use_one_stream(
    cuda: Any, context: Any, new_stream: Callable[..., Any], buffer: Any
) -> None:
    stream = new_stream()
    errors: list[Any] = []

    def work(place: int) -> None:
        try:
            value(cuda.cuCtxSetCurrent(context))
            for count in range(1, 101):
                value(cuda.cuMemsetD8Async(int(buffer) + place, count, 1, stream))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors
    value(cuda.cuStreamSynchronize(stream))
    assert download(cuda, buffer, 8) == bytes([100]) * 8


def test_who_waits_for_room_in_a_full_stream_goes_on_when_there_is_some(
    cuda: Any, context: Any, new_stream: Callable[..., Any], buffer: Any, gate: Any
) -> None:
    stream = new_stream()
    done = 0

    def work() -> None:
        nonlocal done
        value(cuda.cuCtxSetCurrent(context))
        for _ in range(3000):
            value(cuda.cuMemsetD8Async(buffer, 3, 16, stream))
            done += 1

    gate.hold(stream)
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    # Of some thousand: in a tenant of a lower class gates are among them.
    wait_for(lambda: done >= 900)
    gate.settle()
    assert done < 1100, "nothing bounds what is queued"
    gate.open()
    thread.join(60)
    assert done == 3000
    value(cuda.cuStreamSynchronize(stream))
    assert download(cuda, buffer, 16) == b"\3" * 16
