"""Kernel launches: shapes, parameters, results, and faults that stick."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import REAL_GPU
from tests.softgpu.calls import code, download, upload, value
from tests.softgpu.launching import launch, parameters, try_launch

INVALID_VALUE, INVALID_HANDLE, ILLEGAL_ADDRESS, LAUNCH_TOO_LARGE = 1, 400, 700, 720


def floats(*numbers: float) -> bytes:
    return struct.pack(f"{len(numbers)}f", *numbers)


def test_missing_parameters_are_refused(cuda: Any, kernels: Callable[[str], Any]) -> None:
    assert code(try_launch(cuda, kernels("spin"), 0)) == INVALID_VALUE
    assert code(try_launch(cuda, cuda.CUfunction(12345), 0)) == INVALID_HANDLE


def test_built_ins_compute(
    cuda: Any, kernels: Callable[[str], Any], new_stream: Callable[..., Any], buffer: Any
) -> None:
    stream, base = new_stream(), int(buffer)
    a, b, out = base, base + 1024, base + 2048
    upload(cuda, a, floats(1.5, -2.0, 0.1, 4.0))
    launch(cuda, kernels("fill"), stream, parameters("fill", b, 0.25, 4))
    launch(cuda, kernels("add"), stream, parameters("add", out, a, b, 4))
    launch(cuda, kernels("scale"), stream, parameters("scale", out, out, 3.0, 4))
    value(cuda.cuStreamSynchronize(stream))
    got = struct.unpack("4f", download(cuda, out, 16))
    single = [struct.unpack("f", floats(x))[0] for x in (1.5, -2.0, 0.1, 4.0)]
    summed = [struct.unpack("f", floats(x + 0.25))[0] for x in single]
    assert got == struct.unpack("4f", floats(*(x * 3.0 for x in summed)))


def test_parameters_are_read_at_the_call(
    cuda: Any, kernels: Callable[[str], Any], new_stream: Callable[..., Any], buffer: Any, gate: Any
) -> None:
    stream = new_stream()
    gate.hold(stream)
    pointer, number, count = ctypes.c_uint64(int(buffer)), ctypes.c_float(1.0), ctypes.c_uint64(1)
    array = (ctypes.c_void_p * 3)(*(ctypes.addressof(x) for x in (pointer, number, count)))
    launch(cuda, kernels("fill"), stream, ctypes.addressof(array))
    number.value = 2.0
    pointer.value = 0
    gate.open()
    value(cuda.cuStreamSynchronize(stream))
    assert download(cuda, buffer, 4) == floats(1.0)


def test_a_launch_with_attributes(cuda: Any, kernels: Callable[[str], Any], buffer: Any) -> None:
    config = cuda.CUlaunchConfig()
    config.gridDimX = config.gridDimY = config.gridDimZ = 1
    config.blockDimX, config.blockDimY, config.blockDimZ = 32, 1, 1
    priority = cuda.CUlaunchAttribute()
    priority.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PRIORITY
    priority.value.priority = -1
    config.attrs, config.numAttrs = [priority], 1
    value(cuda.cuLaunchKernelEx(config, kernels("fill"), parameters("fill", buffer, 8.0, 1), 0))
    assert download(cuda, buffer, 4) == floats(8.0)


@pytest.mark.skipif(REAL_GPU, reason="text modules are the software GPU's")
def test_a_bad_address_breaks_the_context_until_it_is_gone(cuda: Any) -> None:
    device = value(cuda.cuDeviceGet(0))
    made = value(cuda.cuCtxCreate(None, 0, device))
    module = value(cuda.cuModuleLoadData(b"softgpu 1\nkernel fill function=fill\n\0"))
    fill = value(cuda.cuModuleGetFunction(module, b"fill"))
    pointer = value(cuda.cuMemAlloc(4 << 20))
    launch(cuda, fill, 0, parameters("fill", pointer, 1.0, (4 << 20) // 4))
    value(cuda.cuCtxSynchronize())
    launch(cuda, fill, 0, parameters("fill", 64, 1.0, 4))
    assert code(cuda.cuCtxSynchronize()) == ILLEGAL_ADDRESS
    assert code(cuda.cuMemAlloc(4096)) == ILLEGAL_ADDRESS
    assert code(try_launch(cuda, fill, 0, parameters("fill", pointer, 1.0, 1))) == ILLEGAL_ADDRESS
    assert code(cuda.cuStreamSynchronize(0)) == ILLEGAL_ADDRESS
    value(cuda.cuCtxDestroy(made))
    fresh = value(cuda.cuCtxCreate(None, 0, device))
    value(cuda.cuMemFree(value(cuda.cuMemAlloc(4096))))
    value(cuda.cuCtxDestroy(fresh))


def test_the_run_time_comes_from_a_parameter(
    cuda: Any,
    kernels: Callable[[str], Any],
    new_stream: Callable[..., Any],
    new_event: Callable[..., Any],
    gate: Any,
) -> None:
    stream = new_stream()
    marks = [new_event() for _ in range(3)]
    gate.hold(stream)
    value(cuda.cuEventRecord(marks[0], stream))
    for mark, microseconds in zip(marks[1:], (1000, 20000), strict=True):
        launch(cuda, kernels("spin"), stream, parameters("spin", microseconds))
        value(cuda.cuEventRecord(mark, stream))
    gate.open()
    value(cuda.cuStreamSynchronize(stream))
    assert value(cuda.cuEventElapsedTime(marks[1], marks[2])) == pytest.approx(20, rel=0.02)


def test_kernels_that_need_few_sms_run_side_by_side(
    cuda: Any,
    kernels: Callable[[str], Any],
    new_stream: Callable[..., Any],
    new_event: Callable[..., Any],
    gate: Any,
) -> None:
    first, second = new_stream(), new_stream()
    start, first_end, second_end = new_event(), new_event(), new_event()
    gate.hold(first)
    # On the device both begin at one moment, however late the host sees that the gate is open.
    value(cuda.cuEventRecord(start, first))
    value(cuda.cuStreamWaitEvent(second, start, 0))
    for stream, end in ((first, first_end), (second, second_end)):
        for _ in range(20):
            launch(cuda, kernels("narrow"), stream)
        value(cuda.cuEventRecord(end, stream))
    gate.open()
    value(cuda.cuCtxSynchronize())
    for end in (first_end, second_end):  # 20 of 1 ms: one after the other, those of both would take 40
        assert value(cuda.cuEventElapsedTime(start, end)) < 30
