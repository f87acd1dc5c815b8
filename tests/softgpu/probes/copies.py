"""Copies and memsets."""

from __future__ import annotations

from typing import Any

from tests.softgpu.calls import code
from tests.softgpu.probes.needs import MIB, allocated, freed, host_pages, streamed
from tests.softgpu.probes.table import INVALID_VALUE, SUCCESS, probe


@probe(SUCCESS)
def copy_nothing(cuda: Any) -> int:
    with allocated(cuda) as pointer:
        return code(cuda.cuMemcpyHtoD(pointer, b"", 0))


@probe(SUCCESS)
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


@probe(SUCCESS)
def copy_program_memory_by_address_alone(cuda: Any) -> int:
    with allocated(cuda) as pointer, host_pages() as address:
        return code(cuda.cuMemcpy(pointer, address, 4096))


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
