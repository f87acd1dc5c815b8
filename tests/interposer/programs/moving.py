"""A job with memory of every kind that can move, each piece with contents of its own; it does what stdin says."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

from soft import Gpu, check, driver  # type: ignore[import-not-found]

PAGE = 2 << 20


def device_location() -> Any:
    location = driver.CUmemLocation()
    location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    location.id = 0
    return location


def by_mapping(size: int, elsewhere_before: bool = False) -> Any:
    """As PyTorch's expandable segments do it: several handles side by side, released once mapped."""
    prop = driver.CUmemAllocationProp()
    prop.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location = device_location()
    access = driver.CUmemAccessDesc()
    access.location = device_location()
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    size = -(-size // PAGE) * PAGE
    base = check(driver.cuMemAddressReserve(size, 0, 0, 0))
    elsewhere = check(driver.cuMemAddressReserve(PAGE, 0, 0, 0))
    for at in range(0, size, PAGE):
        handle = check(driver.cuMemCreate(PAGE, prop, 0))
        if elsewhere_before:
            check(driver.cuMemMap(elsewhere, PAGE, 0, handle, 0))
            check(driver.cuMemUnmap(elsewhere, PAGE))
        check(driver.cuMemMap(int(base) + at, PAGE, 0, handle, 0))
        check(driver.cuMemRelease(handle))
    check(driver.cuMemSetAccess(base, size, [access], 1))
    return base


WAYS: dict[str, Callable[[int], Any]] = {
    "alloc": lambda size: check(driver.cuMemAlloc(size)),
    "ordered": lambda size: check(driver.cuMemAllocAsync(size, 0)),
    "mapped": by_mapping,
    "mapped-again": lambda size: by_mapping(size, elsewhere_before=True),
}


class Memory:
    """Pieces of GPU memory, and what must be in them."""

    def __init__(self, seed: int = 0) -> None:
        self.chance = random.Random(seed)
        self.pieces: list[tuple[int, bytes]] = []

    def add(self, way: str, size: int) -> int:
        pointer = int(WAYS[way](size))
        self.pieces.append((pointer, b""))
        self.fill(len(self.pieces) - 1, size)
        return pointer

    def fill(self, index: int, size: int) -> None:
        pattern = self.chance.randbytes(min(size, 4096))
        contents = (pattern * (size // len(pattern) + 1))[:size]
        pointer, _ = self.pieces[index]
        check(driver.cuMemcpyHtoD(pointer, contents, size))
        self.pieces[index] = (pointer, contents)

    def is_whole(self) -> bool:
        for pointer, contents in self.pieces:
            there = bytearray(len(contents))
            check(driver.cuMemcpyDtoH(there, pointer, len(contents)))
            if bytes(there) != contents:
                return False
        return True

    def free_last(self) -> None:
        pointer, _ = self.pieces.pop()
        check(driver.cuMemFree(pointer))


def serve(memory: Memory, gpu: Gpu) -> None:
    print("ready", flush=True)
    for line in sys.stdin:
        words = line.split()
        if words[0] == "add":
            try:
                for _ in range(int(words[3]) if len(words) > 3 else 1):
                    memory.add(words[1], int(words[2]))
                print("added", flush=True)
            except RuntimeError as error:
                print(error, flush=True)
        elif words[0] == "free":
            memory.free_last()
            print("freed", flush=True)
        elif words[0] == "check":
            print("whole" if memory.is_whole() else "torn", flush=True)
        elif words[0] == "info":
            print(*check(driver.cuMemGetInfo()), flush=True)
        else:
            exec(line, {"memory": memory, "gpu": gpu, "driver": driver, "check": check, "say": say})


def say(*words: Any) -> None:
    print(*words, flush=True)


if __name__ == "__main__":
    one = Gpu()
    serve(Memory(int(sys.argv[1]) if len(sys.argv) > 1 else 0), one)
