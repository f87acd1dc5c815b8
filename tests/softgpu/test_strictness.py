"""The error codes of the driver, one named probe each.

The table runs unmodified on NVIDIA's driver (COTENANT_TEST_REAL_GPU=1): every probe makes what it needs, gives it back,
and leaves the context usable. `sure=False` marks a code that is believed, not recorded.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.conftest import REAL_GPU
from tests.softgpu.calls import code, value
from tests.softgpu.test_vmm import PAGE, access, properties

SUCCESS = 0
INVALID_VALUE = 1
OUT_OF_MEMORY = 2
INVALID_DEVICE = 101
NOT_FOUND = 500
ALREADY_REGISTERED = 712
NOT_REGISTERED = 713

MIB = 1 << 20
NO_SUCH_DEVICE = 1000
TOO_MUCH = 1 << 44


@dataclass(frozen=True)
class Probe:
    name: str
    run: Callable[[Any], int]
    expected: int
    sure: bool


PROBES: list[Probe] = []


def probe(expected: int, sure: bool = True) -> Callable[[Callable[[Any], int]], Callable[[Any], int]]:
    def enter(run: Callable[[Any], int]) -> Callable[[Any], int]:
        PROBES.append(Probe(run.__name__, run, expected, sure))
        return run

    return enter


# ---- what probes need ------------------------------------------------------------------------------------------------


@contextmanager
def allocated(cuda: Any, size: int = 4 * MIB) -> Iterator[int]:
    pointer = int(value(cuda.cuMemAlloc(size)))
    try:
        yield pointer
    finally:
        value(cuda.cuMemFree(pointer))


def freed(cuda: Any) -> int:
    with allocated(cuda) as pointer:
        return pointer


@contextmanager
def host_pages(pages: int = 4) -> Iterator[int]:
    memory = mmap.mmap(-1, pages * mmap.PAGESIZE)
    handle = (ctypes.c_char * len(memory)).from_buffer(memory)
    try:
        yield ctypes.addressof(handle)
    finally:
        del handle
        memory.close()


@contextmanager
def registered(cuda: Any, pages: int = 4) -> Iterator[int]:
    with host_pages(pages) as address:
        value(cuda.cuMemHostRegister(address, pages * mmap.PAGESIZE, 0))
        try:
            yield address
        finally:
            value(cuda.cuMemHostUnregister(address))


@contextmanager
def pinned(cuda: Any) -> Iterator[int]:
    pointer = int(value(cuda.cuMemHostAlloc(4096, 0)))
    try:
        yield pointer
    finally:
        value(cuda.cuMemFreeHost(pointer))


@contextmanager
def reserved(cuda: Any, pages: int = 4) -> Iterator[int]:
    base = int(value(cuda.cuMemAddressReserve(pages * PAGE, 0, 0, 0)))
    try:
        yield base
    finally:
        value(cuda.cuMemAddressFree(base, pages * PAGE))


@contextmanager
def created(cuda: Any, pages: int = 1) -> Iterator[Any]:
    handle = value(cuda.cuMemCreate(pages * PAGE, properties(cuda), 0))
    try:
        yield handle
    finally:
        value(cuda.cuMemRelease(handle))


@contextmanager
def mapped(cuda: Any, base: int, pages: int = 1) -> Iterator[Any]:
    """Physical memory at an address, without access."""
    with created(cuda, pages) as handle:
        value(cuda.cuMemMap(base, pages * PAGE, 0, handle, 0))
        try:
            yield handle
        finally:
            value(cuda.cuMemUnmap(base, pages * PAGE))


@contextmanager
def streamed(cuda: Any) -> Iterator[Any]:
    stream = value(cuda.cuStreamCreate(0))
    try:
        yield stream
    finally:
        value(cuda.cuStreamSynchronize(stream))
        value(cuda.cuStreamDestroy(stream))


# ---- device memory ---------------------------------------------------------------------------------------------------


@probe(INVALID_VALUE)
def allocate_nothing(cuda: Any) -> int:
    return code(cuda.cuMemAlloc(0))


@probe(OUT_OF_MEMORY)
def allocate_more_than_there_is(cuda: Any) -> int:
    return code(cuda.cuMemAlloc(TOO_MUCH))


@probe(INVALID_VALUE)
def allocate_pitched_with_an_odd_element(cuda: Any) -> int:
    return code(cuda.cuMemAllocPitch(100, 10, 3))


@probe(SUCCESS)
def free_null(cuda: Any) -> int:
    return code(cuda.cuMemFree(0))


@probe(INVALID_VALUE)
def free_twice(cuda: Any) -> int:
    return code(cuda.cuMemFree(freed(cuda)))


@probe(INVALID_VALUE)
def free_in_the_middle(cuda: Any) -> int:
    with allocated(cuda) as pointer:
        return code(cuda.cuMemFree(pointer + 512))


@probe(INVALID_VALUE)
def free_memory_of_the_program(cuda: Any) -> int:
    with host_pages() as address:
        return code(cuda.cuMemFree(address))


@probe(INVALID_VALUE, sure=False)
def free_pinned_memory_as_the_devices(cuda: Any) -> int:
    with pinned(cuda) as pointer:
        return code(cuda.cuMemFree(pointer))


@probe(NOT_FOUND, sure=False)
def range_of_an_unknown_address(cuda: Any) -> int:
    with host_pages() as address:
        return code(cuda.cuMemGetAddressRange(address))


@probe(NOT_FOUND, sure=False)
def range_of_a_freed_address(cuda: Any) -> int:
    return code(cuda.cuMemGetAddressRange(freed(cuda)))


@probe(INVALID_VALUE)
def attribute_of_an_unknown_address(cuda: Any) -> int:
    with host_pages() as address:
        kind = cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        return code(cuda.cuPointerGetAttribute(kind, address))


@probe(INVALID_VALUE, sure=False)
def host_pointer_of_device_memory(cuda: Any) -> int:
    with allocated(cuda) as pointer:
        kind = cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_HOST_POINTER
        return code(cuda.cuPointerGetAttribute(kind, pointer))


# ---- host memory -----------------------------------------------------------------------------------------------------


@probe(INVALID_VALUE, sure=False)
def allocate_no_host_memory(cuda: Any) -> int:
    return code(cuda.cuMemHostAlloc(0, 0))


@probe(INVALID_VALUE)
def allocate_host_memory_with_unknown_flags(cuda: Any) -> int:
    return code(cuda.cuMemHostAlloc(4096, 0x800))


@probe(INVALID_VALUE, sure=False)
def free_null_host_memory(cuda: Any) -> int:
    return code(cuda.cuMemFreeHost(0))


@probe(INVALID_VALUE)
def free_host_memory_twice(cuda: Any) -> int:
    with pinned(cuda) as pointer:
        pass
    return code(cuda.cuMemFreeHost(pointer))


@probe(INVALID_VALUE)
def free_registered_memory(cuda: Any) -> int:
    with registered(cuda) as address:
        return code(cuda.cuMemFreeHost(address))


@probe(ALREADY_REGISTERED)
def register_twice(cuda: Any) -> int:
    with registered(cuda) as address:
        return code(cuda.cuMemHostRegister(address, 4 * mmap.PAGESIZE, 0))


@probe(ALREADY_REGISTERED)
def register_an_overlapping_range(cuda: Any) -> int:
    with host_pages(6) as address:
        value(cuda.cuMemHostRegister(address, 4 * mmap.PAGESIZE, 0))
        result = code(cuda.cuMemHostRegister(address + 2 * mmap.PAGESIZE, 4 * mmap.PAGESIZE, 0))
        value(cuda.cuMemHostUnregister(address))
        return result


@probe(INVALID_VALUE)
def register_nothing(cuda: Any) -> int:
    with host_pages() as address:
        return code(cuda.cuMemHostRegister(address, 0, 0))


@probe(INVALID_VALUE)
def register_null(cuda: Any) -> int:
    return code(cuda.cuMemHostRegister(0, 4096, 0))


@probe(INVALID_VALUE, sure=False)
def register_pages_that_are_not_there(cuda: Any) -> int:
    with host_pages() as address:
        pass
    return code(cuda.cuMemHostRegister(address, mmap.PAGESIZE, 0))


@probe(NOT_REGISTERED)
def unregister_unknown_memory(cuda: Any) -> int:
    with host_pages() as address:
        return code(cuda.cuMemHostUnregister(address))


@probe(NOT_REGISTERED)
def unregister_twice(cuda: Any) -> int:
    with host_pages() as address:
        value(cuda.cuMemHostRegister(address, mmap.PAGESIZE, 0))
        value(cuda.cuMemHostUnregister(address))
        return code(cuda.cuMemHostUnregister(address))


@probe(NOT_REGISTERED, sure=False)
def unregister_in_the_middle(cuda: Any) -> int:
    with registered(cuda) as address:
        return code(cuda.cuMemHostUnregister(address + mmap.PAGESIZE))


@probe(NOT_REGISTERED, sure=False)
def unregister_allocated_memory(cuda: Any) -> int:
    with pinned(cuda) as pointer:
        return code(cuda.cuMemHostUnregister(pointer))


@probe(INVALID_VALUE)
def device_pointer_of_unknown_memory(cuda: Any) -> int:
    with host_pages() as address:
        return code(cuda.cuMemHostGetDevicePointer(address, 0))


@probe(INVALID_VALUE, sure=False)
def flags_of_registered_memory(cuda: Any) -> int:
    with registered(cuda) as address:
        return code(cuda.cuMemHostGetFlags(address))


# ---- copies ----------------------------------------------------------------------------------------------------------


@probe(SUCCESS)
def copy_nothing(cuda: Any) -> int:
    with allocated(cuda) as pointer:
        return code(cuda.cuMemcpyHtoD(pointer, b"", 0))


@probe(SUCCESS, sure=False)
def copy_nothing_to_freed_memory(cuda: Any) -> int:
    return code(cuda.cuMemcpyHtoD(freed(cuda), b"x", 0))


@probe(INVALID_VALUE)
def copy_to_freed_memory(cuda: Any) -> int:
    return code(cuda.cuMemcpyHtoD(freed(cuda), b"12345678", 8))


@probe(INVALID_VALUE)
def copy_from_freed_memory(cuda: Any) -> int:
    return code(cuda.cuMemcpyDtoH(bytearray(8), freed(cuda), 8))


@probe(INVALID_VALUE)
def copy_to_null(cuda: Any) -> int:
    return code(cuda.cuMemcpyHtoD(0, b"12345678", 8))


@probe(INVALID_VALUE)
def copy_past_the_end(cuda: Any) -> int:
    with allocated(cuda, 4 * MIB) as pointer:
        return code(cuda.cuMemcpyHtoD(pointer + 4 * MIB - 4, b"12345678", 8))


@probe(INVALID_VALUE)
def copy_async_to_freed_memory(cuda: Any) -> int:
    with streamed(cuda) as stream:
        return code(cuda.cuMemcpyHtoDAsync(freed(cuda), b"12345678", 8, stream))


@probe(SUCCESS, sure=False)
def copy_program_memory_by_address_alone(cuda: Any) -> int:
    with allocated(cuda) as pointer, host_pages() as address:
        return code(cuda.cuMemcpy(pointer, address, 4096))


@probe(INVALID_VALUE)
def copy_a_rectangle_with_too_small_a_pitch(cuda: Any) -> int:
    with allocated(cuda) as pointer:
        copy = cuda.CUDA_MEMCPY2D()
        copy.srcMemoryType = copy.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
        copy.srcDevice, copy.srcPitch = pointer, 512
        copy.dstDevice, copy.dstPitch = pointer + 2 * MIB, 64
        copy.WidthInBytes, copy.Height = 128, 4
        return code(cuda.cuMemcpy2D(copy))


@probe(SUCCESS, sure=False)
def copy_a_rectangle_without_rows(cuda: Any) -> int:
    with allocated(cuda) as pointer:
        copy = cuda.CUDA_MEMCPY2D()
        copy.srcMemoryType = copy.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
        copy.srcDevice, copy.srcPitch = pointer, 512
        copy.dstDevice, copy.dstPitch = pointer + 2 * MIB, 512
        copy.WidthInBytes, copy.Height = 128, 0
        return code(cuda.cuMemcpy2D(copy))


@probe(INVALID_VALUE)
def set_freed_memory(cuda: Any) -> int:
    return code(cuda.cuMemsetD8(freed(cuda), 1, 8))


@probe(INVALID_VALUE)
def set_past_the_end(cuda: Any) -> int:
    with allocated(cuda, 4 * MIB) as pointer:
        return code(cuda.cuMemsetD8(pointer, 1, 4 * MIB + 1))


@probe(INVALID_VALUE)
def set_words_at_an_odd_address(cuda: Any) -> int:
    with allocated(cuda) as pointer:
        return code(cuda.cuMemsetD32(pointer + 2, 1, 8))


@probe(SUCCESS)
def set_nothing(cuda: Any) -> int:
    with allocated(cuda) as pointer:
        return code(cuda.cuMemsetD8(pointer, 1, 0))


# ---- virtual memory --------------------------------------------------------------------------------------------------


@probe(INVALID_VALUE)
def reserve_no_addresses(cuda: Any) -> int:
    return code(cuda.cuMemAddressReserve(0, 0, 0, 0))


@probe(INVALID_VALUE, sure=False)
def reserve_part_of_a_page(cuda: Any) -> int:
    return code(cuda.cuMemAddressReserve(PAGE + 1, 0, 0, 0))


@probe(INVALID_VALUE, sure=False)
def reserve_with_an_odd_alignment(cuda: Any) -> int:
    return code(cuda.cuMemAddressReserve(PAGE, 3 * PAGE, 0, 0))


@probe(INVALID_VALUE)
def create_nothing(cuda: Any) -> int:
    return code(cuda.cuMemCreate(0, properties(cuda), 0))


@probe(INVALID_VALUE)
def create_part_of_a_page(cuda: Any) -> int:
    return code(cuda.cuMemCreate(PAGE + 4096, properties(cuda), 0))


@probe(OUT_OF_MEMORY)
def create_more_than_there_is(cuda: Any) -> int:
    return code(cuda.cuMemCreate(TOO_MUCH, properties(cuda), 0))


@probe(INVALID_DEVICE, sure=False)
def create_on_no_device(cuda: Any) -> int:
    wanted = properties(cuda)
    wanted.location.id = NO_SUCH_DEVICE
    return code(cuda.cuMemCreate(PAGE, wanted, 0))


@probe(INVALID_VALUE, sure=False)
def release_twice(cuda: Any) -> int:
    with created(cuda) as handle:
        pass
    return code(cuda.cuMemRelease(handle))


@probe(INVALID_VALUE)
def map_twice(cuda: Any) -> int:
    with reserved(cuda) as base, mapped(cuda, base), created(cuda) as other:
        return code(cuda.cuMemMap(base, PAGE, 0, other, 0))


@probe(INVALID_VALUE)
def map_over_the_end_of_a_mapping(cuda: Any) -> int:
    with reserved(cuda) as base, mapped(cuda, base, 2), created(cuda, 2) as other:
        return code(cuda.cuMemMap(base + PAGE, 2 * PAGE, 0, other, 0))


@probe(INVALID_VALUE)
def map_at_an_odd_address(cuda: Any) -> int:
    with reserved(cuda) as base, created(cuda) as handle:
        return code(cuda.cuMemMap(base + 4096, PAGE, 0, handle, 0))


@probe(INVALID_VALUE)
def map_part_of_a_page(cuda: Any) -> int:
    with reserved(cuda) as base, created(cuda) as handle:
        return code(cuda.cuMemMap(base, 4096, 0, handle, 0))


@probe(INVALID_VALUE)
def map_with_an_offset(cuda: Any) -> int:
    with reserved(cuda) as base, created(cuda, 2) as handle:
        return code(cuda.cuMemMap(base, PAGE, PAGE, handle, 0))


@probe(INVALID_VALUE)
def map_more_than_was_created(cuda: Any) -> int:
    with reserved(cuda) as base, created(cuda) as handle:
        return code(cuda.cuMemMap(base, 2 * PAGE, 0, handle, 0))


@probe(SUCCESS, sure=False)
def map_less_than_was_created(cuda: Any) -> int:
    with reserved(cuda) as base, created(cuda, 2) as handle:
        result = code(cuda.cuMemMap(base, PAGE, 0, handle, 0))
        if result == SUCCESS:
            value(cuda.cuMemUnmap(base, PAGE))
        return result


@probe(INVALID_VALUE)
def map_past_the_reservation(cuda: Any) -> int:
    with reserved(cuda, 2) as base, created(cuda, 2) as handle:
        return code(cuda.cuMemMap(base + PAGE, 2 * PAGE, 0, handle, 0))


@probe(INVALID_VALUE)
def map_at_addresses_given_back(cuda: Any) -> int:
    with reserved(cuda) as base:
        pass
    with created(cuda) as handle:
        return code(cuda.cuMemMap(base, PAGE, 0, handle, 0))


@probe(INVALID_VALUE, sure=False)
def map_released_memory(cuda: Any) -> int:
    with created(cuda) as handle:
        pass
    with reserved(cuda) as base:
        return code(cuda.cuMemMap(base, PAGE, 0, handle, 0))


@probe(INVALID_VALUE)
def unmap_what_is_not_mapped(cuda: Any) -> int:
    with reserved(cuda) as base:
        return code(cuda.cuMemUnmap(base, PAGE))


@probe(INVALID_VALUE)
def unmap_part_of_a_mapping(cuda: Any) -> int:
    with reserved(cuda) as base, mapped(cuda, base, 2):
        return code(cuda.cuMemUnmap(base, PAGE))


@probe(SUCCESS)
def unmap_two_mappings_at_once(cuda: Any) -> int:
    with reserved(cuda) as base, created(cuda) as one, created(cuda) as other:
        value(cuda.cuMemMap(base, PAGE, 0, one, 0))
        value(cuda.cuMemMap(base + PAGE, PAGE, 0, other, 0))
        return code(cuda.cuMemUnmap(base, 2 * PAGE))


@probe(INVALID_VALUE, sure=False)
def unmap_a_mapping_and_a_hole(cuda: Any) -> int:
    with reserved(cuda) as base, created(cuda) as handle:
        value(cuda.cuMemMap(base, PAGE, 0, handle, 0))
        result = code(cuda.cuMemUnmap(base, 2 * PAGE))
        if result != SUCCESS:
            value(cuda.cuMemUnmap(base, PAGE))
        return result


@probe(INVALID_VALUE)
def access_to_what_is_not_mapped(cuda: Any) -> int:
    with reserved(cuda) as base:
        return code(cuda.cuMemSetAccess(base, PAGE, [access(cuda)], 1))


@probe(INVALID_VALUE, sure=False)
def access_to_part_of_a_mapping(cuda: Any) -> int:
    with reserved(cuda) as base, mapped(cuda, base, 2):
        return code(cuda.cuMemSetAccess(base, PAGE, [access(cuda)], 1))


@probe(INVALID_DEVICE, sure=False)
def access_for_no_device(cuda: Any) -> int:
    with reserved(cuda) as base, mapped(cuda, base):
        wanted = access(cuda)
        wanted.location.id = NO_SUCH_DEVICE
        return code(cuda.cuMemSetAccess(base, PAGE, [wanted], 1))


@probe(INVALID_VALUE)
def ask_for_access_to_what_is_not_mapped(cuda: Any) -> int:
    with reserved(cuda) as base:
        return code(cuda.cuMemGetAccess(access(cuda).location, base))


@probe(INVALID_VALUE)
def copy_to_reserved_addresses(cuda: Any) -> int:
    with reserved(cuda) as base:
        return code(cuda.cuMemcpyHtoD(base, b"12345678", 8))


@probe(INVALID_VALUE, sure=False)
def copy_to_a_mapping_without_access(cuda: Any) -> int:
    with reserved(cuda) as base, mapped(cuda, base):
        return code(cuda.cuMemcpyHtoD(base, b"12345678", 8))


@probe(INVALID_VALUE)
def copy_to_an_unmapped_address(cuda: Any) -> int:
    with reserved(cuda) as base:
        with mapped(cuda, base):
            value(cuda.cuMemSetAccess(base, PAGE, [access(cuda)], 1))
        return code(cuda.cuMemcpyHtoD(base, b"12345678", 8))


@probe(INVALID_VALUE, sure=False)
def free_addresses_in_use(cuda: Any) -> int:
    with reserved(cuda) as base, mapped(cuda, base):
        return code(cuda.cuMemAddressFree(base, 4 * PAGE))


@probe(INVALID_VALUE)
def free_half_of_a_reservation(cuda: Any) -> int:
    with reserved(cuda, 4) as base:
        return code(cuda.cuMemAddressFree(base, 2 * PAGE))


@probe(INVALID_VALUE)
def free_addresses_twice(cuda: Any) -> int:
    with reserved(cuda) as base:
        pass
    return code(cuda.cuMemAddressFree(base, 4 * PAGE))


@probe(INVALID_VALUE)
def handle_of_an_address_without_memory(cuda: Any) -> int:
    with reserved(cuda) as base:
        return code(cuda.cuMemRetainAllocationHandle(base))


@probe(INVALID_VALUE, sure=False)
def free_a_mapping_like_an_allocation(cuda: Any) -> int:
    with reserved(cuda) as base, mapped(cuda, base):
        return code(cuda.cuMemFree(base))


# ---- stream-ordered allocation ---------------------------------------------------------------------------------------


@probe(INVALID_VALUE)
def allocate_nothing_in_a_stream(cuda: Any) -> int:
    with streamed(cuda) as stream:
        return code(cuda.cuMemAllocAsync(0, stream))


@probe(OUT_OF_MEMORY)
def allocate_too_much_in_a_stream(cuda: Any) -> int:
    with streamed(cuda) as stream:
        return code(cuda.cuMemAllocAsync(TOO_MUCH, stream))


@probe(INVALID_VALUE)
def free_twice_in_a_stream(cuda: Any) -> int:
    with streamed(cuda) as stream:
        pointer = value(cuda.cuMemAllocAsync(MIB, stream))
        value(cuda.cuMemFreeAsync(pointer, stream))
        return code(cuda.cuMemFreeAsync(pointer, stream))


@probe(INVALID_VALUE, sure=False)
def free_null_in_a_stream(cuda: Any) -> int:
    with streamed(cuda) as stream:
        return code(cuda.cuMemFreeAsync(0, stream))


@probe(INVALID_VALUE, sure=False)
def free_a_plain_allocation_in_a_stream(cuda: Any) -> int:
    with streamed(cuda) as stream:
        pointer = value(cuda.cuMemAlloc(4 * MIB))
        result = code(cuda.cuMemFreeAsync(pointer, stream))
        if result != SUCCESS:
            value(cuda.cuMemFree(pointer))
        return result


@probe(SUCCESS)
def free_pool_memory_without_a_stream(cuda: Any) -> int:
    with streamed(cuda) as stream:
        pointer = value(cuda.cuMemAllocAsync(MIB, stream))
        value(cuda.cuStreamSynchronize(stream))
        return code(cuda.cuMemFree(pointer))


@probe(INVALID_VALUE, sure=False)
def destroy_the_default_pool(cuda: Any) -> int:
    return code(cuda.cuMemPoolDestroy(value(cuda.cuDeviceGetDefaultMemPool(0))))


@probe(INVALID_VALUE)
def set_what_a_pool_uses_now(cuda: Any) -> int:
    pool = value(cuda.cuDeviceGetDefaultMemPool(0))
    which = cuda.CUmemPool_attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT
    return code(cuda.cuMemPoolSetAttribute(pool, which, cuda.cuuint64_t(0)))


@probe(INVALID_VALUE)
def set_the_most_a_pool_used(cuda: Any) -> int:
    pool = value(cuda.cuDeviceGetDefaultMemPool(0))
    which = cuda.CUmemPool_attribute.CU_MEMPOOL_ATTR_USED_MEM_HIGH
    return code(cuda.cuMemPoolSetAttribute(pool, which, cuda.cuuint64_t(1)))


@probe(INVALID_DEVICE)
def default_pool_of_no_device(cuda: Any) -> int:
    return code(cuda.cuDeviceGetDefaultMemPool(NO_SUCH_DEVICE))


@pytest.mark.parametrize("one", PROBES, ids=lambda one: one.name)
def test_probe(cuda: Any, context: Any, one: Probe) -> None:
    before = value(cuda.cuMemGetInfo())[0]
    assert one.run(cuda) == one.expected
    value(cuda.cuCtxSynchronize())
    if not REAL_GPU:  # which others may be using at the same time
        assert value(cuda.cuMemGetInfo())[0] == before, "the probe left memory behind"
