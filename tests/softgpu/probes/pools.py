"""Stream-ordered allocation and pools."""

from __future__ import annotations

from typing import Any

from tests.softgpu.calls import code, value
from tests.softgpu.probes.needs import MIB, NO_SUCH_DEVICE, TOO_MUCH, streamed
from tests.softgpu.probes.table import INVALID_DEVICE, INVALID_VALUE, OUT_OF_MEMORY, SUCCESS, probe


@probe(SUCCESS)
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


@probe(SUCCESS)
def free_null_in_a_stream(cuda: Any) -> int:
    with streamed(cuda) as stream:
        return code(cuda.cuMemFreeAsync(0, stream))


@probe(SUCCESS)
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


@probe(INVALID_VALUE)
def destroy_the_default_pool(cuda: Any) -> int:
    return code(cuda.cuMemPoolDestroy(value(cuda.cuDeviceGetDefaultMemPool(0))))


@probe(INVALID_VALUE)
def set_what_a_pool_uses_now(cuda: Any) -> int:
    pool = value(cuda.cuDeviceGetDefaultMemPool(0))
    which = cuda.CUmemPool_attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT
    return code(cuda.cuMemPoolSetAttribute(pool, which, cuda.cuuint64_t(0)))


@probe(INVALID_DEVICE)
def default_pool_of_no_device(cuda: Any) -> int:
    return code(cuda.cuDeviceGetDefaultMemPool(NO_SUCH_DEVICE))


@probe(0)
def what_nothing_allocated_in_a_stream_is(cuda: Any) -> int:
    """The lower half of the address that cuMemAllocAsync gives for no bytes."""
    with streamed(cuda) as stream:
        pointer = int(value(cuda.cuMemAllocAsync(0, stream)))
        cuda.cuMemFreeAsync(pointer, stream)
        return pointer & 0x7FFFFFFF


@probe(INVALID_VALUE)
def free_what_a_stream_has_freed(cuda: Any) -> int:
    with streamed(cuda) as stream:
        pointer = value(cuda.cuMemAllocAsync(MIB, stream))
        value(cuda.cuMemFreeAsync(pointer, stream))
        value(cuda.cuStreamSynchronize(stream))
        return code(cuda.cuMemFreeAsync(pointer, stream))


@probe(INVALID_VALUE, hangs=True)
def free_a_plain_allocation_twice_in_a_stream(cuda: Any) -> int:
    with streamed(cuda) as stream:
        pointer = value(cuda.cuMemAlloc(4 * MIB))
        value(cuda.cuMemFreeAsync(pointer, stream))
        return code(cuda.cuMemFreeAsync(pointer, stream))


@probe(SUCCESS, apart=True)
def free_plainly_what_a_stream_was_told_to_free(cuda: Any) -> int:
    with streamed(cuda) as stream:
        pointer = value(cuda.cuMemAlloc(4 * MIB))
        value(cuda.cuMemFreeAsync(pointer, stream))
        return code(cuda.cuMemFree(pointer))


@probe(INVALID_VALUE)
def free_in_the_middle_in_a_stream(cuda: Any) -> int:
    with streamed(cuda) as stream:
        pointer = int(value(cuda.cuMemAllocAsync(MIB, stream)))
        result = code(cuda.cuMemFreeAsync(pointer + 512, stream))
        value(cuda.cuMemFreeAsync(pointer, stream))
        return result
