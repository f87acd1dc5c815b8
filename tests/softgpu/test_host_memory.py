"""Host memory that the device can reach."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import pytest

from tests.softgpu.calls import code, download, upload, value

SIZE = 64 * 1024


@pytest.fixture
def pages() -> Any:
    memory = mmap.mmap(-1, SIZE)
    handle = (ctypes.c_char * SIZE).from_buffer(memory)
    yield ctypes.addressof(handle)
    del handle
    memory.close()


def test_allocated_host_memory_is_read_when_the_copy_runs(cuda: Any, context: Any) -> None:
    host = value(cuda.cuMemHostAlloc(SIZE, 0))
    device = value(cuda.cuMemAlloc(SIZE))
    ctypes.memmove(int(host), b"a" * SIZE, SIZE)
    value(cuda.cuMemcpyHtoDAsync(device, host, SIZE, 0))
    value(cuda.cuStreamSynchronize(0))
    assert download(cuda, device, SIZE) == b"a" * SIZE
    value(cuda.cuMemFree(device))
    value(cuda.cuMemFreeHost(host))


def test_the_device_pointer_of_host_memory_reaches_it(cuda: Any, context: Any) -> None:
    host = value(cuda.cuMemHostAlloc(SIZE, cuda.CU_MEMHOSTALLOC_DEVICEMAP))
    pointer = value(cuda.cuMemHostGetDevicePointer(host, 0))
    value(cuda.cuMemsetD8(pointer, 0x5A, SIZE))
    value(cuda.cuCtxSynchronize())
    assert ctypes.string_at(int(host), SIZE) == b"\x5a" * SIZE
    value(cuda.cuMemFreeHost(host))


def test_registered_memory_is_reached_through_its_device_pointer(cuda: Any, context: Any, pages: int) -> None:
    value(cuda.cuMemHostRegister(pages, SIZE, cuda.CU_MEMHOSTREGISTER_DEVICEMAP))
    pointer = value(cuda.cuMemHostGetDevicePointer(pages, 0))
    upload(cuda, pointer, b"xyz")
    assert ctypes.string_at(pages, 3) == b"xyz"
    value(cuda.cuMemHostUnregister(pages))
    assert code(cuda.cuMemHostGetDevicePointer(pages, 0)) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE


def test_memory_type_of_registered_memory_is_host_until_unregistered(
    cuda: Any, context: Any, pages: int
) -> None:
    attribute = cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    value(cuda.cuMemHostRegister(pages, SIZE, 0))
    assert int(value(cuda.cuPointerGetAttribute(attribute, pages))) == int(
        cuda.CUmemorytype.CU_MEMORYTYPE_HOST
    )
    value(cuda.cuMemHostUnregister(pages))
    assert code(cuda.cuPointerGetAttribute(attribute, pages)) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
