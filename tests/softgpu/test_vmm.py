"""Virtual memory management: addresses and physical memory apart."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.softgpu.calls import code, download, upload, value

MIB, GIB = 1 << 20, 1 << 30
PAGE = 2 * MIB
SLOTS = 6


def properties(cuda: Any, exportable: bool = False) -> Any:
    wanted = cuda.CUmemAllocationProp()
    wanted.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    wanted.location.id = 0
    if exportable:
        wanted.requestedHandleTypes = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    return wanted


def access(cuda: Any, flags: str = "READWRITE") -> Any:
    wanted = cuda.CUmemAccessDesc()
    wanted.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    wanted.location.id = 0
    wanted.flags = getattr(cuda.CUmemAccess_flags, f"CU_MEM_ACCESS_FLAGS_PROT_{flags}")
    return wanted


@pytest.fixture
def addresses(cuda: Any, context: Any) -> Any:
    base = int(value(cuda.cuMemAddressReserve(SLOTS * PAGE, 0, 0, 0)))
    yield base
    value(cuda.cuMemAddressFree(base, SLOTS * PAGE))


def free_bytes(cuda: Any) -> int:
    return int(value(cuda.cuMemGetInfo())[0])


def test_contents_move_with_the_physical_memory(cuda: Any, addresses: int) -> None:
    handle = value(cuda.cuMemCreate(PAGE, properties(cuda), 0))
    value(cuda.cuMemMap(addresses, PAGE, 0, handle, 0))
    value(cuda.cuMemSetAccess(addresses, PAGE, [access(cuda)], 1))
    upload(cuda, addresses + 1000, b"carried along")
    value(cuda.cuMemUnmap(addresses, PAGE))

    value(cuda.cuMemMap(addresses + 3 * PAGE, PAGE, 0, handle, 0))
    value(cuda.cuMemSetAccess(addresses + 3 * PAGE, PAGE, [access(cuda)], 1))
    assert download(cuda, addresses + 3 * PAGE + 1000, 13) == b"carried along"
    value(cuda.cuMemUnmap(addresses + 3 * PAGE, PAGE))
    value(cuda.cuMemRelease(handle))


@pytest.mark.parametrize("alignment", [0, PAGE, 16 * GIB])
def test_addresses_are_aligned_and_take_no_more_than_was_asked_for(
    cuda: Any, context: Any, alignment: int
) -> None:
    def address_space() -> int:
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")

    before = address_space()
    base = int(value(cuda.cuMemAddressReserve(PAGE, alignment, 0, 0)))
    assert base % (alignment or PAGE) == 0
    assert address_space() - before < 2 * GIB
    value(cuda.cuMemAddressFree(base, PAGE))
    # The same place is had by wish, but only while it is free.
    assert int(value(cuda.cuMemAddressReserve(PAGE, alignment, base, 0))) == base
    other = int(value(cuda.cuMemAddressReserve(PAGE, alignment, base, 0)))
    assert other != base
    for one in (base, other):
        value(cuda.cuMemAddressFree(one, PAGE))
    assert code(cuda.cuMemAddressFree(base, PAGE)) == int(cuda.CUresult.CUDA_ERROR_INVALID_VALUE)


def test_addresses_that_cannot_be(cuda: Any, context: Any) -> None:
    invalid = int(cuda.CUresult.CUDA_ERROR_INVALID_VALUE)
    for bytes_, alignment, flags in ((0, 0, 0), (PAGE + 1, 0, 0), (PAGE, 3 * MIB, 0), (PAGE, 0, 1)):
        assert code(cuda.cuMemAddressReserve(bytes_, alignment, 0, flags)) == invalid
    assert code(cuda.cuMemAddressReserve(2**64 - PAGE, 2 * PAGE, 0, 0)) == int(
        cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    )


def test_two_mappings_of_one_memory_show_the_same(cuda: Any, addresses: int) -> None:
    handle = value(cuda.cuMemCreate(PAGE, properties(cuda), 0))
    for slot in (0, 2):
        value(cuda.cuMemMap(addresses + slot * PAGE, PAGE, 0, handle, 0))
        value(cuda.cuMemSetAccess(addresses + slot * PAGE, PAGE, [access(cuda)], 1))
    upload(cuda, addresses, b"seen twice")
    assert download(cuda, addresses + 2 * PAGE, 10) == b"seen twice"
    for slot in (0, 2):
        value(cuda.cuMemUnmap(addresses + slot * PAGE, PAGE))
    value(cuda.cuMemRelease(handle))


def test_memory_is_counted_from_creation_until_nothing_holds_it(cuda: Any, addresses: int) -> None:
    before = free_bytes(cuda)
    handle = value(cuda.cuMemCreate(4 * PAGE, properties(cuda), 0))
    assert before - free_bytes(cuda) == 4 * PAGE
    value(cuda.cuMemMap(addresses, 4 * PAGE, 0, handle, 0))
    value(cuda.cuMemRelease(handle))
    assert before - free_bytes(cuda) == 4 * PAGE
    value(cuda.cuMemUnmap(addresses, 4 * PAGE))
    assert free_bytes(cuda) == before


def test_a_handle_can_be_had_back_from_an_address(cuda: Any, addresses: int) -> None:
    handle = value(cuda.cuMemCreate(PAGE, properties(cuda), 0))
    value(cuda.cuMemMap(addresses, PAGE, 0, handle, 0))
    again = value(cuda.cuMemRetainAllocationHandle(addresses + 100))
    found = value(cuda.cuMemGetAllocationPropertiesFromHandle(again))
    assert found.location.id == 0
    value(cuda.cuMemUnmap(addresses, PAGE))
    value(cuda.cuMemRelease(handle))
    value(cuda.cuMemRelease(again))


def test_a_copy_may_span_neighbouring_mappings(cuda: Any, addresses: int) -> None:
    handles = [value(cuda.cuMemCreate(PAGE, properties(cuda), 0)) for _ in range(2)]
    for slot, handle in enumerate(handles):
        value(cuda.cuMemMap(addresses + slot * PAGE, PAGE, 0, handle, 0))
        value(cuda.cuMemRelease(handle))
    value(cuda.cuMemSetAccess(addresses, 2 * PAGE, [access(cuda)], 1))
    data = bytes(range(200))
    upload(cuda, addresses + PAGE - 100, data)
    assert download(cuda, addresses + PAGE - 100, 200) == data
    value(cuda.cuMemUnmap(addresses, 2 * PAGE))


def test_memory_travels_as_a_file_descriptor(cuda: Any, addresses: int) -> None:
    kind = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    handle = value(cuda.cuMemCreate(PAGE, properties(cuda, exportable=True), 0))
    descriptor = value(cuda.cuMemExportToShareableHandle(handle, kind, 0))
    imported = value(cuda.cuMemImportFromShareableHandle(int(descriptor), kind))
    os.close(int(descriptor))
    for slot, which in enumerate((handle, imported)):
        value(cuda.cuMemMap(addresses + slot * PAGE, PAGE, 0, which, 0))
        value(cuda.cuMemRelease(which))
    value(cuda.cuMemSetAccess(addresses, 2 * PAGE, [access(cuda)], 1))
    upload(cuda, addresses, b"one memory")
    assert download(cuda, addresses + PAGE, 10) == b"one memory"
    value(cuda.cuMemUnmap(addresses, 2 * PAGE))


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["map", "unmap", "access", "write"]), st.integers(0, SLOTS - 1), st.integers(1, 3)
    ),
    max_size=25,
)


@settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(actions=ACTIONS)
def test_any_order_of_calls_agrees_with_a_table(
    cuda: Any, addresses: int, actions: list[tuple[str, int, int]]
) -> None:
    """Maps, unmaps and accesses of one to three pages against the plainest model of them. No mapping reaches over the
    end of the reservation."""
    invalid = int(cuda.CUresult.CUDA_ERROR_INVALID_VALUE)
    owner: dict[int, tuple[int, int]] = {}  # slot -> the mapping (first slot, pages) it belongs to
    open_slots: set[int] = set()

    def whole(first: int, pages: int, slots: range) -> bool:
        """Whether a mapping lies in these slots with all its pages."""
        return first in slots and first + pages - 1 in slots

    for name, first, pages in actions:
        slots = range(first, first + pages)
        if name == "map" and slots.stop > SLOTS:
            continue
        base, size = addresses + first * PAGE, pages * PAGE
        if name == "map":
            handle = value(cuda.cuMemCreate(size, properties(cuda), 0))
            fits = not any(s in owner for s in slots)
            assert code(cuda.cuMemMap(base, size, 0, handle, 0)) == (0 if fits else invalid)
            value(cuda.cuMemRelease(handle))
            if fits:
                owner.update({s: (first, pages) for s in slots})
        elif name == "unmap":
            inside = all(whole(*owner[s], slots) for s in slots if s in owner)
            assert code(cuda.cuMemUnmap(base, size)) == (0 if inside else invalid)
            if inside:
                for s in slots:
                    owner.pop(s, None)
                    open_slots.discard(s)
        elif name == "access":
            expected = 0 if all(s in owner and whole(*owner[s], slots) for s in slots) else invalid
            assert code(cuda.cuMemSetAccess(base, size, [access(cuda)], 1)) == expected
            if expected == 0:
                open_slots.update(slots)
        else:
            expected = 0 if all(s in open_slots for s in slots) else invalid
            assert code(cuda.cuMemcpyHtoD(base + size - 8, b"8 bytes.", 8)) == (
                0 if first + pages - 1 in open_slots else invalid
            )
            assert code(cuda.cuMemsetD8(base, 1, size)) == expected
    for first, pages in set(owner.values()):
        value(cuda.cuMemUnmap(addresses + first * PAGE, pages * PAGE))


def test_memory_that_is_mapped_to_be_read_is_not_written(cuda: Any, addresses: int) -> None:
    handle = value(cuda.cuMemCreate(PAGE, properties(cuda), 0))
    value(cuda.cuMemMap(addresses, PAGE, 0, handle, 0))
    value(cuda.cuMemSetAccess(addresses, PAGE, [access(cuda)], 1))
    upload(cuda, addresses, b"as it was")
    value(cuda.cuMemSetAccess(addresses, PAGE, [access(cuda, "READ")], 1))
    assert code(cuda.cuMemsetD8(addresses, 0, 4)) == int(cuda.CUresult.CUDA_ERROR_INVALID_VALUE)
    assert download(cuda, addresses, 9) == b"as it was"
    value(cuda.cuMemUnmap(addresses, PAGE))
    value(cuda.cuMemRelease(handle))
