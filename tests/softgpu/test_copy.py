"""Copies and memsets move exactly the bytes they name."""

from __future__ import annotations

import ctypes
import struct
import threading
from typing import Any

import pytest

from tests.softgpu.calls import download, upload, value
from tests.softgpu.gate import Gate


class Buffer:
    """Plain host memory with a fixed address."""

    def __init__(self, data: bytes) -> None:
        self.memory = ctypes.create_string_buffer(data, len(data))

    @property
    def address(self) -> int:
        return ctypes.addressof(self.memory)

    @property
    def data(self) -> bytes:
        return self.memory.raw


@pytest.fixture
def stream(cuda: Any, context: Any) -> Any:
    made = value(cuda.cuStreamCreate(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING.value))
    yield made
    value(cuda.cuStreamDestroy(made))


@pytest.fixture
def device(cuda: Any, context: Any) -> Any:
    pointer = value(cuda.cuMemAlloc(1 << 20))
    value(cuda.cuMemsetD8(pointer, 0, 1 << 20))
    yield int(pointer)
    value(cuda.cuMemFree(pointer))


def pattern(size: int) -> bytes:
    return bytes((i * 7 + i // 251) % 256 for i in range(size))


def test_a_round_trip_is_exact_at_odd_offsets(cuda: Any, device: int) -> None:
    data = pattern(10_007)
    upload(cuda, device + 3, data)
    assert download(cuda, device + 3, len(data)) == data
    assert download(cuda, device, 3) == b"\0\0\0"


def test_device_to_device_and_unified_copies(cuda: Any, device: int) -> None:
    data = pattern(5000)
    upload(cuda, device, data)
    value(cuda.cuMemcpyDtoD(device + 10_000, device, 5000))
    value(cuda.cuMemcpy(device + 20_000, device + 10_000, 5000))
    assert download(cuda, device + 20_000, 5000) == data


def test_pageable_memory_is_read_before_the_call_returns(
    cuda: Any, device: int, stream: Any, gate: Gate
) -> None:
    source = Buffer(b"before" * 100)
    gate.hold(stream)
    value(cuda.cuMemcpyHtoDAsync(device, source.address, 600, stream))
    ctypes.memset(source.address, 0, 600)
    gate.open()
    value(cuda.cuStreamSynchronize(stream))
    assert download(cuda, device, 600) == b"before" * 100


def test_pinned_memory_is_read_when_the_copy_runs(cuda: Any, device: int, stream: Any, gate: Gate) -> None:
    source = value(cuda.cuMemHostAlloc(600, 0))
    ctypes.memmove(int(source), b"before" * 100, 600)
    gate.hold(stream)
    value(cuda.cuMemcpyHtoDAsync(device, source, 600, stream))
    ctypes.memmove(int(source), b"after!" * 100, 600)
    gate.open()
    value(cuda.cuStreamSynchronize(stream))
    assert download(cuda, device, 600) == b"after!" * 100
    value(cuda.cuMemFreeHost(source))


def test_an_async_copy_to_pageable_memory_is_there_on_return(cuda: Any, device: int, stream: Any) -> None:
    upload(cuda, device, pattern(3000))
    target = Buffer(bytes(3000))
    value(cuda.cuMemcpyDtoHAsync(target.address, device, 3000, stream))
    assert target.data == pattern(3000)


def test_a_graph_reads_its_sources_at_each_launch(cuda: Any, device: int, stream: Any) -> None:
    source = Buffer(b"first!")
    value(cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    value(cuda.cuMemcpyHtoDAsync(device, source.address, 6, stream))
    graph = value(cuda.cuStreamEndCapture(stream))
    executable = value(cuda.cuGraphInstantiate(graph, 0))
    for text in (b"first!", b"second"):
        ctypes.memmove(source.address, text, 6)
        value(cuda.cuGraphLaunch(executable, stream))
        value(cuda.cuStreamSynchronize(stream))
        assert download(cuda, device, 6) == text
    value(cuda.cuGraphExecDestroy(executable))
    value(cuda.cuGraphDestroy(graph))


@pytest.mark.parametrize(
    ("name", "form", "number"), [("D8", "B", 0xAB), ("D16", "H", 0xABCD), ("D32", "I", 0x12345678)]
)
def test_memsets_fill_elements_and_no_more(
    cuda: Any, device: int, stream: Any, name: str, form: str, number: int
) -> None:
    size = struct.calcsize(form)
    value(getattr(cuda, f"cuMemset{name}")(device + 8, number, 10))
    value(getattr(cuda, f"cuMemset{name}Async")(device + 1024, number, 10, stream))
    value(cuda.cuCtxSynchronize())
    expected = struct.pack(f"<10{form}", *[number] * 10)
    assert download(cuda, device, 8 + 10 * size + 8) == bytes(8) + expected + bytes(8)
    assert download(cuda, device + 1024, 10 * size) == expected


@pytest.mark.parametrize("pitch", [1 << 63, (1 << 64) - 64, 1 << 40])
def test_a_memset_beyond_all_addresses_is_an_error(cuda: Any, device: int, pitch: int) -> None:
    assert cuda.cuMemsetD2D8(device, pitch, 7, 4, 3)[0] == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
    assert download(cuda, device, 16) == bytes(16)


def test_a_copy_in_another_contexts_stream_returns_when_it_is_made(
    cuda: Any, context: Any, device: int, gate: Gate
) -> None:
    """To pageable memory, which the caller may give back then."""
    upload(cuda, device, b"there")
    own = value(cuda.cuStreamCreate(0))
    there = Buffer(bytes(5))
    made = value(cuda.cuCtxCreate(None, 0, 0))
    gate.hold(own)
    copied = []
    copy = threading.Thread(
        target=lambda: copied.append(
            (cuda.cuCtxSetCurrent(made), cuda.cuMemcpyDtoHAsync(there.address, device, 5, own), there.data)
        )
    )
    copy.start()
    copy.join(0.2)
    assert copy.is_alive()
    gate.open()
    copy.join(30)
    assert copied[0][2] == b"there"
    value(cuda.cuCtxDestroy(made))
    value(cuda.cuStreamDestroy(own))


def test_a_two_dimensional_memset_leaves_the_gaps(cuda: Any, device: int) -> None:
    value(cuda.cuMemsetD2D8(device, 16, 0xFF, 10, 3))
    assert download(cuda, device, 48) == (b"\xff" * 10 + bytes(6)) * 3
