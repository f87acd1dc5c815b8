"""Stream-ordered allocation and pools."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.conftest import REAL_GPU
from tests.softgpu.calls import code, download, upload, value

MIB = 1 << 20
INVALID_VALUE = 1


@pytest.fixture
def stream(cuda: Any, context: Any) -> Any:
    made = value(cuda.cuStreamCreate(0))
    yield made
    value(cuda.cuStreamDestroy(made))


@pytest.fixture
def pool(cuda: Any, context: Any) -> Any:
    wanted = cuda.CUmemPoolProps()
    wanted.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    wanted.location.id = 0
    made = value(cuda.cuMemPoolCreate(wanted))
    yield made
    value(cuda.cuMemPoolDestroy(made))


def attribute(cuda: Any, pool: Any, name: str) -> int:
    return int(
        value(cuda.cuMemPoolGetAttribute(pool, getattr(cuda.CUmemPool_attribute, f"CU_MEMPOOL_ATTR_{name}")))
    )


def set_attribute(cuda: Any, pool: Any, name: str, number: int) -> None:
    which = getattr(cuda.CUmemPool_attribute, f"CU_MEMPOOL_ATTR_{name}")
    value(cuda.cuMemPoolSetAttribute(pool, which, cuda.cuuint64_t(number)))


def free_bytes(cuda: Any) -> int:
    return int(value(cuda.cuMemGetInfo())[0])


def test_memory_allocated_in_a_stream_can_be_used(cuda: Any, stream: Any) -> None:
    pointer = value(cuda.cuMemAllocAsync(10_000, stream))
    value(cuda.cuMemsetD8Async(pointer, 9, 10_000, stream))
    value(cuda.cuStreamSynchronize(stream))
    assert download(cuda, pointer, 10_000) == b"\x09" * 10_000
    value(cuda.cuMemFreeAsync(pointer, stream))
    value(cuda.cuStreamSynchronize(stream))


def test_a_synchronisation_returns_what_is_unused(cuda: Any, stream: Any) -> None:
    value(cuda.cuStreamSynchronize(stream))
    before = free_bytes(cuda)
    pointer = value(cuda.cuMemAllocAsync(64 * MIB, stream))
    value(cuda.cuMemFreeAsync(pointer, stream))
    value(cuda.cuStreamSynchronize(stream))
    assert free_bytes(cuda) == before


def test_a_plain_allocation_is_freed_when_its_stream_gets_there(cuda: Any, stream: Any, gate: Any) -> None:
    before = free_bytes(cuda)
    pointer = value(cuda.cuMemAlloc(4 * MIB))
    gate.hold(stream)
    value(cuda.cuMemsetD8Async(pointer, 3, 4 * MIB, stream))
    kept = value(cuda.cuMemAllocAsync(16, stream))
    value(cuda.cuMemcpyDtoDAsync(kept, pointer, 16, stream))
    value(cuda.cuMemFreeAsync(pointer, stream))
    gate.open()
    value(cuda.cuStreamSynchronize(stream))
    assert download(cuda, kept, 16) == b"\x03" * 16
    value(cuda.cuMemFreeAsync(kept, stream))
    value(cuda.cuStreamSynchronize(stream))
    assert free_bytes(cuda) == before
    assert code(cuda.cuMemcpyHtoD(pointer, b"x", 1)) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE


def test_a_pool_keeps_what_its_release_threshold_says(cuda: Any, stream: Any, pool: Any) -> None:
    set_attribute(cuda, pool, "RELEASE_THRESHOLD", 1 << 40)
    pointer = value(cuda.cuMemAllocFromPoolAsync(64 * MIB, pool, stream))
    value(cuda.cuMemFreeAsync(pointer, stream))
    value(cuda.cuStreamSynchronize(stream))
    assert attribute(cuda, pool, "RESERVED_MEM_CURRENT") >= 64 * MIB
    assert attribute(cuda, pool, "USED_MEM_CURRENT") == 0
    before = free_bytes(cuda)
    value(cuda.cuMemPoolTrimTo(pool, 0))
    assert attribute(cuda, pool, "RESERVED_MEM_CURRENT") == 0
    assert free_bytes(cuda) - before >= 64 * MIB


def test_figures_of_a_pool(cuda: Any, stream: Any, pool: Any) -> None:
    pointers = [value(cuda.cuMemAllocFromPoolAsync(3 * MIB, pool, stream)) for _ in range(4)]
    assert attribute(cuda, pool, "USED_MEM_CURRENT") == 12 * MIB
    for pointer in pointers:
        value(cuda.cuMemFreeAsync(pointer, stream))
    value(cuda.cuStreamSynchronize(stream))
    assert attribute(cuda, pool, "USED_MEM_CURRENT") == 0


def test_a_stream_reuses_what_it_freed_without_waiting(cuda: Any, stream: Any, gate: Any) -> None:
    """More than the device has, while none of the frees can be reached."""
    gate.hold(stream)
    rescue = threading.Timer(30, gate.open)  # a driver that waits here would wait for ever
    rescue.start()
    half = free_bytes(cuda) // 2
    for _ in range(8):
        pointer = value(cuda.cuMemAllocAsync(half, stream))
        value(cuda.cuMemFreeAsync(pointer, stream))
    waited = gate.is_open
    rescue.cancel()
    gate.open()
    value(cuda.cuStreamSynchronize(stream))
    assert not waited


def test_a_stream_has_no_use_of_what_another_has_yet_to_free(cuda: Any, new_stream: Any, gate: Any) -> None:
    """Memory that it shared with the held stream would be filled again when the gate opens."""
    held, other = new_stream(), new_stream()
    pending = value(cuda.cuMemAllocAsync(MIB, held))
    gate.hold(held)
    value(cuda.cuMemsetD8Async(pending, 1, MIB, held))
    value(cuda.cuMemFreeAsync(pending, held))
    pointer = value(cuda.cuMemAllocAsync(MIB, other))
    value(cuda.cuMemsetD8Async(pointer, 2, MIB, other))
    gate.settle()
    gate.open()
    value(cuda.cuCtxSynchronize())
    assert download(cuda, pointer, MIB) == b"\x02" * MIB
    value(cuda.cuMemFreeAsync(pointer, other))
    value(cuda.cuStreamSynchronize(other))


def test_a_graph_uses_the_memory_that_was_allocated_while_capturing(cuda: Any, stream: Any) -> None:
    kept = value(cuda.cuMemAlloc(1000))
    value(cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
    scratch = value(cuda.cuMemAllocAsync(1000, stream))
    value(cuda.cuMemsetD8Async(scratch, 5, 1000, stream))
    value(cuda.cuMemcpyDtoDAsync(kept, scratch, 1000, stream))
    value(cuda.cuMemFreeAsync(scratch, stream))
    graph = value(cuda.cuStreamEndCapture(stream))
    executable = value(cuda.cuGraphInstantiate(graph, 0))
    for _ in range(3):
        value(cuda.cuMemsetD8(kept, 0, 1000))
        value(cuda.cuCtxSynchronize())
        value(cuda.cuGraphLaunch(executable, stream))
        value(cuda.cuStreamSynchronize(stream))
        assert download(cuda, kept, 1000) == b"\x05" * 1000
    value(cuda.cuGraphExecDestroy(executable))
    value(cuda.cuGraphDestroy(graph))
    value(cuda.cuMemFree(kept))


def test_allocations_in_several_streams_do_not_overlap(cuda: Any, context: Any) -> None:
    streams = [value(cuda.cuStreamCreate(0)) for _ in range(3)]
    live = []
    for number in range(60):
        stream = streams[number % 3]
        pointer = value(cuda.cuMemAllocAsync(5000, stream))
        value(cuda.cuMemsetD8Async(pointer, number, 5000, stream))
        live.append((number, pointer))
        if number % 4 == 3:
            _, oldest = live.pop(0)
            value(cuda.cuMemFreeAsync(oldest, stream))
    value(cuda.cuCtxSynchronize())
    for number, pointer in live:
        assert download(cuda, pointer, 5000) == bytes([number]) * 5000
        value(cuda.cuMemFree(pointer))
    for stream in streams:
        value(cuda.cuStreamDestroy(stream))


def test_unused_memory_of_a_pool_makes_room_for_others(cuda: Any, stream: Any, pool: Any) -> None:
    set_attribute(cuda, pool, "RELEASE_THRESHOLD", 1 << 40)
    most = free_bytes(cuda) * 3 // 4
    held = value(cuda.cuMemAllocFromPoolAsync(most, pool, stream))
    value(cuda.cuMemFreeAsync(held, stream))
    value(cuda.cuStreamSynchronize(stream))
    pointer = value(cuda.cuMemAlloc(most))
    value(cuda.cuMemFree(pointer))


@pytest.mark.skipif(
    REAL_GPU, reason="a real driver hangs when a stream is told to free a plain allocation twice"
)
def test_a_plain_allocation_is_freed_in_a_stream_once(cuda: Any, stream: Any, gate: Any) -> None:
    before = free_bytes(cuda)
    pointer = value(cuda.cuMemAlloc(4 * MIB))
    gate.hold(stream)
    value(cuda.cuMemFreeAsync(pointer, stream))
    assert code(cuda.cuMemFreeAsync(pointer, stream)) == INVALID_VALUE
    assert before - free_bytes(cuda) == 4 * MIB
    gate.open()
    value(cuda.cuStreamSynchronize(stream))
    assert free_bytes(cuda) == before
    assert code(cuda.cuMemFree(pointer)) == INVALID_VALUE


@pytest.mark.skipif(REAL_GPU, reason="of a real driver only the answer is recorded: probes/pools.py")
def test_a_plain_free_waits_for_the_stream_that_frees(cuda: Any, stream: Any) -> None:
    before = free_bytes(cuda)
    pointer = value(cuda.cuMemAlloc(4 * MIB))
    value(cuda.cuMemFreeAsync(pointer, stream))
    value(cuda.cuMemFree(pointer))
    value(cuda.cuStreamSynchronize(stream))
    assert free_bytes(cuda) == before


def test_memory_is_of_the_default_pool_or_of_the_one_named(cuda: Any, stream: Any, pool: Any) -> None:
    default = value(cuda.cuDeviceGetDefaultMemPool(0))
    assert int(value(cuda.cuDeviceGetMemPool(0))) == int(default)
    which = cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE
    for pointer, wanted in (
        (value(cuda.cuMemAllocAsync(MIB, stream)), default),
        (value(cuda.cuMemAllocFromPoolAsync(MIB, pool, stream)), pool),
    ):
        assert int(value(cuda.cuPointerGetAttribute(which, pointer))) == int(wanted)
        value(cuda.cuMemFreeAsync(pointer, stream))
    value(cuda.cuStreamSynchronize(stream))


def test_what_a_destroyed_pool_handed_out_stays_usable(cuda: Any, stream: Any) -> None:
    wanted = cuda.CUmemPoolProps()
    wanted.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    pool = value(cuda.cuMemPoolCreate(wanted))
    before = free_bytes(cuda)
    pointer = value(cuda.cuMemAllocFromPoolAsync(MIB, pool, stream))
    value(cuda.cuMemPoolDestroy(pool))
    upload(cuda, pointer, b"still here")
    assert download(cuda, pointer, 10) == b"still here"
    value(cuda.cuMemFreeAsync(pointer, stream))
    value(cuda.cuStreamSynchronize(stream))
    assert free_bytes(cuda) == before
