"""Device memory: what is allocated, what is left, and what an address is."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.softgpu.calls import code, download, upload, value

MIB = 1 << 20


@pytest.fixture
def free_bytes(cuda: Any, context: Any) -> Any:
    return lambda: value(cuda.cuMemGetInfo())[0]


def test_total_memory_is_the_devices(cuda: Any, context: Any) -> None:
    assert value(cuda.cuMemGetInfo())[1] == value(cuda.cuDeviceTotalMem(0))


def test_large_allocations_take_whole_blocks(cuda: Any, free_bytes: Any) -> None:
    before = free_bytes()
    pointer = value(cuda.cuMemAlloc(5 * MIB))
    assert before - free_bytes() == 6 * MIB
    value(cuda.cuMemFree(pointer))
    assert free_bytes() == before


def test_small_allocations_share_a_block(cuda: Any, free_bytes: Any) -> None:
    before = free_bytes()
    pointers = [value(cuda.cuMemAlloc(1000)) for _ in range(100)]
    assert before - free_bytes() == 2 * MIB
    assert len({int(p) for p in pointers}) == 100
    assert all(int(p) % 256 == 0 for p in pointers)
    for pointer in pointers:
        value(cuda.cuMemFree(pointer))
    assert free_bytes() == before


def test_allocations_do_not_overlap(cuda: Any, context: Any) -> None:
    pick = random.Random(1)
    live: dict[int, bytes] = {}
    for _ in range(300):
        if live and pick.random() < 0.4:
            address = pick.choice(list(live))
            assert download(cuda, address, len(live[address])) == live[address]
            value(cuda.cuMemFree(address))
            del live[address]
        else:
            data = pick.randbytes(pick.choice([1, 100, 512, 4000, 70_000]))
            address = int(value(cuda.cuMemAlloc(len(data))))
            upload(cuda, address, data)
            live[address] = data
    for address, data in live.items():
        assert download(cuda, address, len(data)) == data
        value(cuda.cuMemFree(address))


def test_threads_do_not_disturb_each_other(cuda: Any, context: Any) -> None:
    def work(number: int) -> bool:
        value(cuda.cuCtxSetCurrent(context))
        pick = random.Random(number)
        for _ in range(40):
            data = pick.randbytes(pick.choice([10, 3000, MIB + 1]))
            pointer = value(cuda.cuMemAlloc(len(data)))
            upload(cuda, pointer, data)
            same = download(cuda, pointer, len(data)) == data
            value(cuda.cuMemFree(pointer))
            if not same:
                return False
        return True

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(4)))


def test_no_block_is_held_in_which_nothing_lies(cuda: Any, context: Any, free_bytes: Any) -> None:
    before = free_bytes()

    def allocate() -> int:
        value(cuda.cuCtxSetCurrent(context))
        return int(value(cuda.cuMemAlloc(MIB)))

    def free(pointer: int) -> None:
        value(cuda.cuCtxSetCurrent(context))
        value(cuda.cuMemFree(pointer))

    with ThreadPoolExecutor(2) as threads:
        for _ in range(20):
            higher = [allocate() for _ in range(8)]
            first, second = allocate(), allocate()
            for pointer in higher:  # so that the next block comes behind the full one
                free(pointer)
            # The free makes room in the full block while the allocation brings another.
            third, freed = threads.submit(allocate), threads.submit(free, first)
            freed.result()
            held = {second, third.result()}
            assert before - free_bytes() == 2 * MIB * len({pointer // (2 * MIB) for pointer in held})
            for pointer in held:
                free(pointer)
    assert free_bytes() == before


def test_out_of_memory_leaves_nothing_behind(cuda: Any, free_bytes: Any) -> None:
    before = free_bytes()
    pointer = value(cuda.cuMemAlloc(before - 4 * MIB))
    assert code(cuda.cuMemAlloc(8 * MIB)) == cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    value(cuda.cuMemFree(pointer))
    assert free_bytes() == before


def test_a_pitched_allocation_holds_all_its_rows(cuda: Any, context: Any) -> None:
    pointer, pitch = value(cuda.cuMemAllocPitch(1000, 30, 4))
    assert pitch >= 1000 and pitch % 256 == 0
    upload(cuda, int(pointer) + 29 * pitch, bytes(range(250)) * 4)
    assert download(cuda, int(pointer) + 29 * pitch, 1000) == bytes(range(250)) * 4
    value(cuda.cuMemFree(pointer))


def test_managed_memory_is_counted_and_the_hosts_too(cuda: Any, free_bytes: Any) -> None:
    flags = cuda.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL
    pointer = value(cuda.cuMemAllocManaged(4 * MIB, flags.value))
    value(cuda.cuMemsetD8(pointer, 7, 100))
    value(cuda.cuCtxSynchronize())
    attribute = cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED
    assert int(value(cuda.cuPointerGetAttribute(attribute, pointer))) == 1
    assert download(cuda, pointer, 100) == b"\x07" * 100
    value(cuda.cuMemFree(pointer))


def test_a_pointer_inside_an_allocation_names_it(cuda: Any, context: Any) -> None:
    pointer = value(cuda.cuMemAlloc(3 * MIB))
    base, size = value(cuda.cuMemGetAddressRange(int(pointer) + 12345))
    assert (int(base), size) == (int(pointer), 3 * MIB)
    value(cuda.cuMemFree(pointer))


def test_pointer_attributes_of_device_memory(cuda: Any, context: Any) -> None:
    pointer = value(cuda.cuMemAlloc(4096))
    names = cuda.CUpointer_attribute

    def attribute(which: Any) -> Any:
        return value(cuda.cuPointerGetAttribute(which, pointer))

    assert int(attribute(names.CU_POINTER_ATTRIBUTE_MEMORY_TYPE)) == int(
        cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
    )
    assert int(attribute(names.CU_POINTER_ATTRIBUTE_CONTEXT)) == int(context)
    assert int(attribute(names.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)) == 0
    assert int(attribute(names.CU_POINTER_ATTRIBUTE_RANGE_SIZE)) == 4096
    value(cuda.cuMemFree(pointer))


def test_attributes_of_unknown_memory_are_empty_rather_than_an_error(cuda: Any, context: Any) -> None:
    names = cuda.CUpointer_attribute
    wanted = [names.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, names.CU_POINTER_ATTRIBUTE_IS_MANAGED]
    answers = value(cuda.cuPointerGetAttributes(len(wanted), wanted, 4096))
    assert [int(a) for a in answers] == [0, 0]
