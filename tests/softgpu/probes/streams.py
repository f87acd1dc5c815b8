"""Streams, events, and waits for words in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.softgpu.calls import code, value
from tests.softgpu.gate import Gate
from tests.softgpu.probes.needs import (
    allocated,
    freed,
    host_pages,
    new_context,
    new_event,
    reserved,
    streamed,
)
from tests.softgpu.probes.table import INVALID_HANDLE, INVALID_VALUE, NOT_READY, SUCCESS, probe

DISABLE_TIMING = 2
NOR = 3


@contextmanager
def held(cuda: Any) -> Iterator[Any]:
    """A stream that does not get on."""
    with streamed(cuda, 1) as stream:
        gate = Gate(cuda)
        gate.hold(stream)
        try:
            yield stream
        finally:
            gate.close()


@probe(INVALID_VALUE)
def create_a_stream_with_unknown_flags(cuda: Any) -> int:
    return code(cuda.cuStreamCreate(0x80))


@probe(INVALID_VALUE)
def create_an_event_with_unknown_flags(cuda: Any) -> int:
    return code(cuda.cuEventCreate(0x100))


@probe(INVALID_VALUE)
def create_a_shared_event_with_timing(cuda: Any) -> int:
    return code(cuda.cuEventCreate(4))


@probe(SUCCESS)
def query_an_event_never_recorded(cuda: Any) -> int:
    with new_event(cuda) as event:
        return code(cuda.cuEventQuery(event))


@probe(SUCCESS)
def synchronize_with_an_event_never_recorded(cuda: Any) -> int:
    with new_event(cuda) as event:
        return code(cuda.cuEventSynchronize(event))


@probe(INVALID_HANDLE)
def time_between_events_never_recorded(cuda: Any) -> int:
    with new_event(cuda) as start, new_event(cuda) as end:
        return code(cuda.cuEventElapsedTime(start, end))


@probe(INVALID_HANDLE)
def time_to_an_event_without_timing(cuda: Any) -> int:
    with streamed(cuda) as stream, new_event(cuda) as start, new_event(cuda, DISABLE_TIMING) as end:
        value(cuda.cuEventRecord(start, stream))
        value(cuda.cuEventRecord(end, stream))
        value(cuda.cuStreamSynchronize(stream))
        return code(cuda.cuEventElapsedTime(start, end))


@probe(NOT_READY)
def time_to_an_event_not_reached(cuda: Any) -> int:
    with held(cuda) as stream, new_event(cuda) as start, new_event(cuda) as end:
        value(cuda.cuEventRecord(start, stream))
        value(cuda.cuEventRecord(end, stream))
        return code(cuda.cuEventElapsedTime(start, end))


@probe(NOT_READY)
def query_a_stream_that_waits(cuda: Any) -> int:
    with held(cuda) as stream:
        return code(cuda.cuStreamQuery(stream))


@probe(INVALID_HANDLE)
def record_an_event_of_another_context(cuda: Any) -> int:
    with new_event(cuda) as event, new_context(cuda), streamed(cuda) as stream:
        return code(cuda.cuEventRecord(event, stream))


@probe(SUCCESS)
def wait_for_an_event_of_another_context(cuda: Any) -> int:
    with new_event(cuda) as event:
        value(cuda.cuEventRecord(event, 0))
        with new_context(cuda), streamed(cuda) as stream:
            return code(cuda.cuStreamWaitEvent(stream, event, 0))


# What is accepted here would read memory that is not the device's, and break the context.


def wait_for_a_word(cuda: Any, address: int, condition: int = NOR) -> int:
    stream = value(cuda.cuStreamCreate(0))
    result = code(cuda.cuStreamWaitValue32(stream, address, 0, condition))
    cuda.cuStreamSynchronize(stream)
    cuda.cuStreamDestroy(stream)
    return result


@probe(INVALID_VALUE, apart=True)
def wait_for_a_word_at_null(cuda: Any) -> int:
    return wait_for_a_word(cuda, 0)


@probe(INVALID_VALUE, apart=True)
def wait_for_a_word_in_freed_memory(cuda: Any) -> int:
    return wait_for_a_word(cuda, freed(cuda))


@probe(INVALID_VALUE, apart=True)
def wait_for_a_word_at_reserved_addresses(cuda: Any) -> int:
    with reserved(cuda) as base:
        return wait_for_a_word(cuda, base)


@probe(INVALID_VALUE, apart=True)
def wait_for_a_word_of_the_program(cuda: Any) -> int:
    with host_pages() as address:
        return wait_for_a_word(cuda, address)


@probe(INVALID_VALUE, apart=True)
def wait_for_a_word_at_an_odd_address(cuda: Any) -> int:
    with allocated(cuda) as pointer:
        value(cuda.cuMemsetD8(pointer, 0, 64))
        return wait_for_a_word(cuda, pointer + 2)


@probe(INVALID_VALUE, apart=True)
def wait_for_a_word_with_an_unknown_condition(cuda: Any) -> int:
    with allocated(cuda) as pointer:
        value(cuda.cuMemsetD8(pointer, 0, 64))
        return wait_for_a_word(cuda, pointer, 7)


@probe(INVALID_VALUE, apart=True)
def write_a_word_of_the_program(cuda: Any) -> int:
    with host_pages() as address:
        stream = value(cuda.cuStreamCreate(0))
        result = code(cuda.cuStreamWriteValue32(stream, address, 1, 0))
        cuda.cuStreamSynchronize(stream)
        cuda.cuStreamDestroy(stream)
        return result
