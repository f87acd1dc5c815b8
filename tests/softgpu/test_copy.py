"""Copies and memsets move exactly the bytes they name."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.softgpu.calls import download, upload, value
from tests.softgpu.gate import Gate

# The context is the same for all examples on purpose; how long one takes depends on the machine.
SETTINGS = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)


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


def test_a_peer_copy_within_one_device(cuda: Any, context: Any, device: int) -> None:
    data = pattern(5000)
    upload(cuda, device, data)
    value(cuda.cuMemcpyPeer(device + 8192, context, device, context, 5000))
    assert download(cuda, device + 8192, 5000) == data


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


@SETTINGS
@given(
    width=st.integers(1, 40),
    height=st.integers(1, 6),
    source_gap=st.integers(0, 9),
    target_gap=st.integers(0, 9),
    x=st.integers(0, 5),
    y=st.integers(0, 3),
)
def test_a_rectangle_round_trips(
    cuda: Any, device: int, width: int, height: int, source_gap: int, target_gap: int, x: int, y: int
) -> None:
    source_pitch = width + x + source_gap
    source = Buffer(pattern(source_pitch * (height + y)))
    target_pitch = width + target_gap
    target = Buffer(bytes(target_pitch * height))

    there = cuda.CUDA_MEMCPY2D()
    there.srcMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_HOST
    there.srcHost = source.address
    there.srcPitch, there.srcXInBytes, there.srcY = source_pitch, x, y
    there.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
    there.dstDevice, there.dstPitch = device, 64
    there.WidthInBytes, there.Height = width, height
    value(cuda.cuMemcpy2DUnaligned(there))

    back = cuda.CUDA_MEMCPY2D()
    back.srcMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
    back.srcDevice, back.srcPitch = device, 64
    back.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_HOST
    back.dstHost, back.dstPitch = target.address, target_pitch
    back.WidthInBytes, back.Height = width, height
    value(cuda.cuMemcpy2DUnaligned(back))

    expected = bytearray(target_pitch * height)
    for row in range(height):
        start = (row + y) * source_pitch + x
        expected[row * target_pitch : row * target_pitch + width] = source.data[start : start + width]
    assert target.data == bytes(expected)


@SETTINGS
@given(width=st.integers(1, 20), height=st.integers(1, 4), depth=st.integers(1, 4), gap=st.integers(0, 5))
def test_a_box_round_trips(cuda: Any, device: int, width: int, height: int, depth: int, gap: int) -> None:
    rows = height + gap
    pitch = width + gap
    source = Buffer(pattern(pitch * rows * depth))
    target = Buffer(bytes(width * height * depth))

    there = cuda.CUDA_MEMCPY3D()
    there.srcMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_HOST
    there.srcHost, there.srcPitch, there.srcHeight = source.address, pitch, rows
    there.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
    there.dstDevice, there.dstPitch, there.dstHeight = device, 32, 8
    there.WidthInBytes, there.Height, there.Depth = width, height, depth
    value(cuda.cuMemcpy3D(there))

    back = cuda.CUDA_MEMCPY3D()
    back.srcMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
    back.srcDevice, back.srcPitch, back.srcHeight = device, 32, 8
    back.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_HOST
    back.dstHost, back.dstPitch, back.dstHeight = target.address, width, height
    back.WidthInBytes, back.Height, back.Depth = width, height, depth
    value(cuda.cuMemcpy3D(back))

    expected = b"".join(
        source.data[(z * rows + y) * pitch : (z * rows + y) * pitch + width]
        for z in range(depth)
        for y in range(height)
    )
    assert target.data == expected


def test_an_array_keeps_what_was_copied_into_it(cuda: Any, device: int) -> None:
    wanted = cuda.CUDA_ARRAY_DESCRIPTOR()
    wanted.Width, wanted.Height, wanted.NumChannels = 16, 4, 1
    wanted.Format = cuda.CUarray_format.CU_AD_FORMAT_FLOAT
    array = value(cuda.cuArrayCreate(wanted))
    data = pattern(16 * 4 * 4)
    source, target = Buffer(data), Buffer(bytes(len(data)))

    there = cuda.CUDA_MEMCPY2D()
    there.srcMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_HOST
    there.srcHost, there.srcPitch = source.address, 64
    there.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_ARRAY
    there.dstArray = array
    there.WidthInBytes, there.Height = 64, 4
    value(cuda.cuMemcpy2D(there))

    back = cuda.CUDA_MEMCPY2D()
    back.srcMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_ARRAY
    back.srcArray = array
    back.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_HOST
    back.dstHost, back.dstPitch = target.address, 64
    back.WidthInBytes, back.Height = 64, 4
    value(cuda.cuMemcpy2D(back))
    assert target.data == data
    value(cuda.cuArrayDestroy(array))


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


def test_a_two_dimensional_memset_leaves_the_gaps(cuda: Any, device: int) -> None:
    value(cuda.cuMemsetD2D8(device, 16, 0xFF, 10, 3))
    assert download(cuda, device, 48) == (b"\xff" * 10 + bytes(6)) * 3


def test_a_batch_of_copies(cuda: Any, device: int, stream: Any) -> None:
    data = pattern(4096)
    upload(cuda, device, data)
    attributes = cuda.CUmemcpyAttributes()
    attributes.srcAccessOrder = cuda.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
    targets = [cuda.CUdeviceptr(device + 10_000), cuda.CUdeviceptr(device + 20_000)]
    sources = [cuda.CUdeviceptr(device), cuda.CUdeviceptr(device + 1024)]
    value(cuda.cuMemcpyBatchAsync(targets, sources, [1000, 2000], 2, [attributes], [0], 1, stream))
    value(cuda.cuStreamSynchronize(stream))
    assert download(cuda, device + 10_000, 1000) == data[:1000]
    assert download(cuda, device + 20_000, 2000) == data[1024:3024]
