"""What probes need, made and given back around them."""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.conftest import REAL_GPU
from tests.softgpu.calls import value
from tests.softgpu.test_vmm import PAGE, properties

MIB = 1 << 20
NO_SUCH_DEVICE = 1000
TOO_MUCH = 1 << 44
NON_BLOCKING = 1

PTX = b".version 6.3\n.target sm_75\n.address_size 64\n"
# One kernel, `empty`, in the language of the GPU at hand.
MODULE = (
    PTX + b".visible .entry empty() { ret; }\n\0"
    if REAL_GPU
    else b"softgpu 1\nkernel empty time=1us sms=1\n\0"
)
MODULE_WITHOUT_KERNELS = PTX + b"\0" if REAL_GPU else b"softgpu 1\n\0"


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
def streamed(cuda: Any, flags: int = 0) -> Iterator[Any]:
    stream = value(cuda.cuStreamCreate(flags))
    try:
        yield stream
    finally:
        value(cuda.cuStreamSynchronize(stream))
        value(cuda.cuStreamDestroy(stream))


@contextmanager
def new_event(cuda: Any, flags: int = 0) -> Iterator[Any]:
    event = value(cuda.cuEventCreate(flags))
    try:
        yield event
    finally:
        value(cuda.cuEventDestroy(event))


@contextmanager
def new_context(cuda: Any) -> Iterator[Any]:
    """Another context of the device, current meanwhile."""
    made = value(cuda.cuCtxCreate(None, 0, 0))
    try:
        yield made
    finally:
        value(cuda.cuCtxDestroy(made))


@contextmanager
def loaded(cuda: Any) -> Iterator[Any]:
    module = value(cuda.cuModuleLoadData(MODULE))
    try:
        yield module
    finally:
        value(cuda.cuModuleUnload(module))


@contextmanager
def empty_kernel(cuda: Any) -> Iterator[Any]:
    with loaded(cuda) as module:
        yield value(cuda.cuModuleGetFunction(module, b"empty"))
        value(cuda.cuCtxSynchronize())


@contextmanager
def new_graph(cuda: Any) -> Iterator[Any]:
    graph = value(cuda.cuGraphCreate(0))
    try:
        yield graph
    finally:
        value(cuda.cuGraphDestroy(graph))


@contextmanager
def instantiated(cuda: Any, graph: Any) -> Iterator[Any]:
    executable = value(cuda.cuGraphInstantiate(graph, 0))
    try:
        yield executable
    finally:
        value(cuda.cuGraphExecDestroy(executable))


def in_thread(call: Callable[[], int]) -> int:
    """The answer to a call in a thread of its own, which has no current context."""
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(call()))
    thread.start()
    thread.join(30)
    return answers[0]
