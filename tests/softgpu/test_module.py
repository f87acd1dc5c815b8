"""Text modules: what they may say, what is refused, and what functions answer."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.softgpu.calls import code, value

pytestmark = pytest.mark.skipif(
    os.environ.get("COTENANT_TEST_REAL_GPU") == "1", reason="text modules are the software GPU's"
)

INVALID_IMAGE, NO_BINARY_FOR_GPU, INVALID_HANDLE = 200, 209, 400


def test_functions_are_found_by_name(cuda: Any, kernels: Callable[[str], Any]) -> None:
    assert [value(cuda.cuFuncGetName(kernels(name))) for name in ("burn", "fill")] == [b"burn", b"fill"]


@pytest.mark.parametrize(
    ("image", "error"),
    [
        (b".version 8.0\n.target sm_90\n", NO_BINARY_FOR_GPU),
        (b"// a comment\n.version 8.0\n", NO_BINARY_FOR_GPU),
        (b"\x7fELF\x02\x01", NO_BINARY_FOR_GPU),
        (b"garbage", INVALID_IMAGE),
        (b"", INVALID_IMAGE),
        (b"softgpu 2\n", INVALID_IMAGE),
        (b"softgpu 1\nkernel a time=1\n", INVALID_IMAGE),
        (b"softgpu 1\nkernel a time=-1us\n", INVALID_IMAGE),
        (b"softgpu 1\nkernel a\n", INVALID_IMAGE),
        (b"softgpu 1\nkernel a time=1us sms=0\n", INVALID_IMAGE),
        (b"softgpu 1\nkernel a time=@1us params=u64\n", INVALID_IMAGE),
        (b"softgpu 1\nkernel a function=conjure\n", INVALID_IMAGE),
        (b"softgpu 1\nkernel a function=fill params=u64\n", INVALID_IMAGE),
        (b"softgpu 1\nkernel a time=1us\nkernel a time=2us\n", INVALID_IMAGE),
        (b"softgpu 1\nkernel a time=1us colour=red\n", INVALID_IMAGE),
        (b"softgpu 1\nfunction a\n", INVALID_IMAGE),
    ],
)
def test_what_is_no_module_is_refused(cuda: Any, context: Any, image: bytes, error: int) -> None:
    assert code(cuda.cuModuleLoadData(image + b"\0")) == error


def test_the_error_log_names_the_line(cuda: Any, context: Any) -> None:
    log = bytearray(200)
    option = cuda.CUjit_option
    answer = cuda.cuModuleLoadDataEx(
        b"softgpu 1\n\nkernel a time=1parsec\n\0",
        2,
        [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES],
        [log, len(log)],
    )
    assert code(answer) == INVALID_IMAGE
    assert log.split(b"\0")[0] == b"line 3: 'parsec' is not a unit of time: use ns, us, ms or s"


def test_occupancy_follows_block_size(cuda: Any, kernels: Callable[[str], Any]) -> None:
    burn = kernels("burn")
    blocks = [
        value(cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(burn, size, 0)) for size in (32, 256, 1024)
    ]
    assert blocks == sorted(blocks, reverse=True) and blocks[-1] >= 1
    threads = cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR
    assert blocks[-1] * 1024 <= value(cuda.cuDeviceGetAttribute(threads, 0))
