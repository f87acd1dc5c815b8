"""Virtual memory: addresses, physical memory, mappings and access."""

from __future__ import annotations

from typing import Any

from tests.softgpu.calls import code, value
from tests.softgpu.probes.needs import NO_SUCH_DEVICE, TOO_MUCH, created, mapped, reserved
from tests.softgpu.probes.table import (
    INVALID_DEVICE,
    INVALID_VALUE,
    NOT_SUPPORTED,
    OUT_OF_MEMORY,
    SUCCESS,
    probe,
)
from tests.softgpu.test_vmm import PAGE, access, properties


def try_to_map(cuda: Any, base: int, size: int, offset: int, handle: Any) -> int:
    """Leaves nothing mapped, whatever the driver makes of it."""
    result = code(cuda.cuMemMap(base, size, offset, handle, 0))
    if result == SUCCESS:
        value(cuda.cuMemUnmap(base, size))
    return result


@probe(INVALID_VALUE)
def reserve_no_addresses(cuda: Any) -> int:
    return code(cuda.cuMemAddressReserve(0, 0, 0, 0))


@probe(INVALID_VALUE)
def reserve_part_of_a_page(cuda: Any) -> int:
    return code(cuda.cuMemAddressReserve(PAGE + 1, 0, 0, 0))


@probe(INVALID_VALUE)
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


@probe(INVALID_DEVICE)
def create_on_no_device(cuda: Any) -> int:
    wanted = properties(cuda)
    wanted.location.id = NO_SUCH_DEVICE
    return code(cuda.cuMemCreate(PAGE, wanted, 0))


@probe(INVALID_VALUE)
def release_twice(cuda: Any) -> int:
    with created(cuda) as handle:
        pass
    return code(cuda.cuMemRelease(handle))


@probe(INVALID_VALUE)
def map_twice(cuda: Any) -> int:
    with reserved(cuda) as base, mapped(cuda, base), created(cuda) as other:
        return try_to_map(cuda, base, PAGE, 0, other)


@probe(INVALID_VALUE)
def map_over_the_end_of_a_mapping(cuda: Any) -> int:
    with reserved(cuda) as base, mapped(cuda, base, 2), created(cuda, 2) as other:
        return try_to_map(cuda, base + PAGE, 2 * PAGE, 0, other)


@probe(INVALID_VALUE)
def map_at_an_odd_address(cuda: Any) -> int:
    with reserved(cuda) as base, created(cuda) as handle:
        return try_to_map(cuda, base + 4096, PAGE, 0, handle)


@probe(NOT_SUPPORTED)
def map_part_of_a_page(cuda: Any) -> int:
    with reserved(cuda) as base, created(cuda) as handle:
        return try_to_map(cuda, base, 4096, 0, handle)


@probe(NOT_SUPPORTED)
def map_with_an_offset(cuda: Any) -> int:
    with reserved(cuda) as base, created(cuda, 2) as handle:
        return try_to_map(cuda, base, PAGE, PAGE, handle)


@probe(NOT_SUPPORTED)
def map_more_than_was_created(cuda: Any) -> int:
    with reserved(cuda) as base, created(cuda) as handle:
        return try_to_map(cuda, base, 2 * PAGE, 0, handle)


@probe(NOT_SUPPORTED)
def map_less_than_was_created(cuda: Any) -> int:
    with reserved(cuda) as base, created(cuda, 2) as handle:
        return try_to_map(cuda, base, PAGE, 0, handle)


@probe(INVALID_VALUE)
def map_at_addresses_given_back(cuda: Any) -> int:
    with reserved(cuda) as base:
        pass
    with created(cuda) as handle:
        return try_to_map(cuda, base, PAGE, 0, handle)


@probe(INVALID_VALUE)
def map_released_memory(cuda: Any) -> int:
    with created(cuda) as handle:
        pass
    with reserved(cuda) as base:
        return try_to_map(cuda, base, PAGE, 0, handle)


@probe(SUCCESS)
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


@probe(SUCCESS)
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


@probe(INVALID_VALUE)
def access_to_part_of_a_mapping(cuda: Any) -> int:
    with reserved(cuda) as base, mapped(cuda, base, 2):
        return code(cuda.cuMemSetAccess(base, PAGE, [access(cuda)], 1))


@probe(INVALID_VALUE)
def access_for_no_device(cuda: Any) -> int:
    with reserved(cuda) as base, mapped(cuda, base):
        wanted = access(cuda)
        wanted.location.id = NO_SUCH_DEVICE
        return code(cuda.cuMemSetAccess(base, PAGE, [wanted], 1))


@probe(INVALID_VALUE)
def copy_to_reserved_addresses(cuda: Any) -> int:
    with reserved(cuda) as base:
        return code(cuda.cuMemcpyHtoD(base, b"12345678", 8))


@probe(INVALID_VALUE)
def copy_to_a_mapping_without_access(cuda: Any) -> int:
    with reserved(cuda) as base, mapped(cuda, base):
        return code(cuda.cuMemcpyHtoD(base, b"12345678", 8))


@probe(INVALID_VALUE)
def copy_to_an_unmapped_address(cuda: Any) -> int:
    with reserved(cuda) as base:
        with mapped(cuda, base):
            value(cuda.cuMemSetAccess(base, PAGE, [access(cuda)], 1))
        return code(cuda.cuMemcpyHtoD(base, b"12345678", 8))


@probe(INVALID_VALUE)
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


@probe(INVALID_VALUE)
def free_a_mapping_like_an_allocation(cuda: Any) -> int:
    with reserved(cuda) as base, mapped(cuda, base):
        return code(cuda.cuMemFree(base))


@probe(INVALID_VALUE)
def map_nothing(cuda: Any) -> int:
    with reserved(cuda) as base, created(cuda) as handle:
        return try_to_map(cuda, base, 0, 0, handle)


@probe(INVALID_VALUE)
def unmap_nothing(cuda: Any) -> int:
    with reserved(cuda) as base:
        return code(cuda.cuMemUnmap(base, 0))


@probe(SUCCESS)
def unmap_part_of_a_page(cuda: Any) -> int:
    with reserved(cuda) as base:
        return code(cuda.cuMemUnmap(base, 4096))


@probe(SUCCESS)
def unmap_past_the_reservation(cuda: Any) -> int:
    with reserved(cuda, 2) as base:
        return code(cuda.cuMemUnmap(base, 4 * PAGE))


@probe(INVALID_VALUE)
def unmap_addresses_given_back(cuda: Any) -> int:
    with reserved(cuda) as base:
        pass
    return code(cuda.cuMemUnmap(base, PAGE))


@probe(0)
def what_is_left_of_a_mapping_unmapped_with_a_hole(cuda: Any) -> int:
    """Whether the mapping is still there: nothing else may be mapped over it then."""
    with reserved(cuda) as base, created(cuda) as handle, created(cuda) as other:
        value(cuda.cuMemMap(base + PAGE, PAGE, 0, handle, 0))
        value(cuda.cuMemUnmap(base, 3 * PAGE))
        return try_to_map(cuda, base + PAGE, PAGE, 0, other)


@probe(INVALID_VALUE)
def access_to_a_mapping_and_a_hole(cuda: Any) -> int:
    with reserved(cuda) as base, mapped(cuda, base):
        return code(cuda.cuMemSetAccess(base, 2 * PAGE, [access(cuda)], 1))
