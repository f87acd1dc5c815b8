"""Memory of cuMemAlloc in two processes: cuIpcGetMemHandle and its relatives."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

# Does what its input says, a call a line, and answers a line each: a value, or the error code.
CLIENT = """
import ctypes, sys
from cuda.bindings import driver
driver.cuInit(0)
_, context = driver.cuDevicePrimaryCtxRetain(0)
driver.cuCtxSetCurrent(context)

def said(answer, value=lambda given: "fine"):
    return value(*answer[1:]) if int(answer[0]) == 0 else f"error {int(answer[0])}"

def opened(handle, flags="1"):
    given = driver.CUipcMemHandle()
    ctypes.memmove(given.getPtr(), bytes.fromhex(handle), 64)
    return said(driver.cuIpcOpenMemHandle(given, int(flags)), int)

def read(pointer, size):
    there = bytearray(int(size))
    return said(driver.cuMemcpyDtoH(there, int(pointer), len(there)), lambda: there.decode())

def write(pointer, text):
    copied = driver.cuMemcpyHtoD(int(pointer), text.encode(), len(text))
    driver.cuCtxSynchronize()  # small copies return before they have arrived, and other processes may come first
    return said(copied, lambda: "fine")

CALLS = {
    "alloc": lambda size: said(driver.cuMemAlloc(int(size)), int),
    "pinned": lambda size: said(driver.cuMemHostAlloc(int(size), 0), int),
    "ordered": lambda size: said(driver.cuMemAllocAsync(int(size), 0), int),
    "get": lambda at: said(driver.cuIpcGetMemHandle(int(at)), lambda h: ctypes.string_at(h.getPtr(), 64).hex()),
    "open": opened,
    "close": lambda at: said(driver.cuIpcCloseMemHandle(int(at)), lambda: "fine"),
    "free": lambda at: said(driver.cuMemFree(int(at)), lambda: "fine"),
    "write": write,
    "read": read,
    "range": lambda at: said(driver.cuMemGetAddressRange(int(at)), lambda base, size: f"{int(base)} {size}"),
}
for line in sys.stdin:
    call, *words = line.split()
    print(CALLS[call](*words), flush=True)
"""
MIB = 1 << 20
INVALID_VALUE, INVALID_CONTEXT, INVALID_HANDLE = "error 1", "error 201", "error 400"


class Client:
    def __init__(self, child: subprocess.Popen[str], requests: IO[str], answers: IO[str]) -> None:
        self.child, self.requests, self.answers = child, requests, answers

    def __call__(self, call: str, *words: object) -> str:
        self.requests.write(" ".join([call, *map(str, words)]) + "\n")
        self.requests.flush()
        return self.answers.readline().strip()


@pytest.fixture
def client(softgpu_env: dict[str, str]) -> Iterator[Callable[[], Client]]:
    children = []

    def start() -> Client:
        child = subprocess.Popen(
            [sys.executable, "-c", CLIENT],
            env=softgpu_env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        children.append(child)
        assert child.stdin is not None and child.stdout is not None
        return Client(child, child.stdin, child.stdout)

    yield start
    for child in children:
        child.kill()
        child.communicate()


@pytest.mark.parametrize("size", [300, MIB, 5 * MIB])
def test_both_see_what_the_other_writes(client: Callable[[], Client], size: int) -> None:
    one, other = client(), client()
    neighbour, pointer = int(one("alloc", size)), int(one("alloc", size))
    assert one("write", pointer, "before") == "fine"
    handle = one("get", pointer)
    there = int(other("open", handle))
    assert other("read", there, 6) == "before"
    assert other("write", there + size - 4, "last") == "fine"
    assert one("read", pointer + size - 4, 4) == "last"
    assert one("write", pointer, "after!") == "fine"
    assert other("read", there, 6) == "after!"
    assert other("range", there + 9) == f"{there} {size}"
    assert (one("free", neighbour), one("free", pointer)) == ("fine", "fine")


def test_the_handle_is_the_allocations_wherever_the_pointer_is(client: Callable[[], Client]) -> None:
    one = client()
    for size in (300, 5 * MIB):
        pointer = int(one("alloc", size))
        assert one("get", pointer + size - 1) == one("get", pointer)


def test_what_was_written_before_is_there_page_by_page_and_what_was_not_takes_no_room(
    client: Callable[[], Client],
) -> None:
    one, other = client(), client()
    pointer = int(one("alloc", 64 * MIB))
    places = {0: "first", 4096 * 7 + 4000: "seventh", 33 * MIB: "middle", 64 * MIB - 4: "last"}
    for offset, text in places.items():
        assert one("write", pointer + offset, text[:4]) == "fine"
    there = int(other("open", one("get", pointer)))
    for offset, text in places.items():
        assert other("read", there + offset, 4) == text[:4]
    files = [
        one_file for one_file in Path(f"/proc/{one.child.pid}/fd").iterdir() if "ipc" in os.readlink(one_file)
    ]
    assert [file.stat().st_blocks * 512 < 4 * MIB for file in files] == [True]


def test_opened_twice_it_is_closed_twice(client: Callable[[], Client]) -> None:
    one, other = client(), client()
    pointer = one("alloc", 4 * MIB)
    one("write", pointer, "hello")
    handle = one("get", pointer)
    there = other("open", handle)
    assert other("open", handle) == there
    assert (other("close", there), other("read", there, 5)) == ("fine", "hello")
    assert (other("close", there), other("close", there)) == ("fine", INVALID_VALUE)
    assert other("read", there, 5) == INVALID_VALUE
    assert other("read", other("open", handle), 5) == "hello"


def test_what_cannot_be_shared_opened_or_closed(client: Callable[[], Client]) -> None:
    one, other = client(), client()
    pointer = one("alloc", 4 * MIB)
    handle = one("get", pointer)
    for call in ("pinned", "ordered"):
        assert one("get", one(call, 4 * MIB)) == INVALID_VALUE
    assert (one("get", 12345), one("close", pointer), one("close", 12345)) == (INVALID_VALUE,) * 3
    assert one("open", handle) == INVALID_CONTEXT
    assert other("open", handle, 6) == INVALID_VALUE
    there = other("open", handle)
    assert (other("free", there), other("get", there)) == (INVALID_VALUE, INVALID_VALUE)


def test_a_handle_of_memory_that_is_gone_opens_nothing(client: Callable[[], Client]) -> None:
    one, other = client(), client()
    pointer = one("alloc", 4 * MIB)
    stale = one("get", pointer)
    one("free", pointer)
    assert other("open", stale) == INVALID_VALUE
    assert one("get", one("alloc", 4 * MIB)) != stale
    orphan = one("get", one("alloc", 4 * MIB))
    one.child.kill()
    one.child.wait()
    assert other("open", orphan) == INVALID_HANDLE
    assert other("open", "00" * 64) == INVALID_VALUE
