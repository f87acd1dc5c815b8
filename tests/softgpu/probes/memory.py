"""Memory of the device and of the host."""

from __future__ import annotations

import mmap
from typing import Any

from tests.softgpu.calls import code, value
from tests.softgpu.probes.needs import TOO_MUCH, allocated, freed, host_pages, pinned, registered
from tests.softgpu.probes.table import (
    ALREADY_REGISTERED,
    INVALID_VALUE,
    NOT_FOUND,
    NOT_REGISTERED,
    OUT_OF_MEMORY,
    SUCCESS,
    probe,
)


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


@probe(INVALID_VALUE)
def free_pinned_memory_as_the_devices(cuda: Any) -> int:
    with pinned(cuda) as pointer:
        return code(cuda.cuMemFree(pointer))


@probe(NOT_FOUND)
def range_of_an_unknown_address(cuda: Any) -> int:
    with host_pages() as address:
        return code(cuda.cuMemGetAddressRange(address))


@probe(NOT_FOUND)
def range_of_a_freed_address(cuda: Any) -> int:
    return code(cuda.cuMemGetAddressRange(freed(cuda)))


@probe(INVALID_VALUE)
def attribute_of_an_unknown_address(cuda: Any) -> int:
    with host_pages() as address:
        kind = cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        return code(cuda.cuPointerGetAttribute(kind, address))


@probe(SUCCESS)
def allocate_no_host_memory(cuda: Any) -> int:
    return code(cuda.cuMemHostAlloc(0, 0))


@probe(INVALID_VALUE)
def allocate_host_memory_with_unknown_flags(cuda: Any) -> int:
    return code(cuda.cuMemHostAlloc(4096, 0x800))


@probe(SUCCESS)
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


@probe(INVALID_VALUE)
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


@probe(INVALID_VALUE)
def unregister_in_the_middle(cuda: Any) -> int:
    with registered(cuda) as address:
        return code(cuda.cuMemHostUnregister(address + mmap.PAGESIZE))


@probe(INVALID_VALUE)
def unregister_allocated_memory(cuda: Any) -> int:
    with pinned(cuda) as pointer:
        return code(cuda.cuMemHostUnregister(pointer))


@probe(INVALID_VALUE)
def device_pointer_of_unknown_memory(cuda: Any) -> int:
    with host_pages() as address:
        return code(cuda.cuMemHostGetDevicePointer(address, 0))


@probe(0)
def what_no_host_memory_is(cuda: Any) -> int:
    """The lower half of the address that cuMemHostAlloc gives for no bytes."""
    pointer = int(value(cuda.cuMemHostAlloc(0, 0)) or 0)
    cuda.cuMemFreeHost(pointer)
    return pointer & 0x7FFFFFFF


@probe(INVALID_VALUE)
def unregister_device_memory(cuda: Any) -> int:
    with allocated(cuda) as pointer:
        return code(cuda.cuMemHostUnregister(pointer))


@probe(INVALID_VALUE)
def free_host_memory_in_the_middle(cuda: Any) -> int:
    with pinned(cuda) as pointer:
        return code(cuda.cuMemFreeHost(pointer + 512))
