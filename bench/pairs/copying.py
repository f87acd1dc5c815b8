"""Copies between host and GPU through NVIDIA's cuda-bindings: production's of 1 MiB, and a job's without pause."""

from __future__ import annotations

import ctypes
import mmap
import random
from collections.abc import Callable
from typing import Any

from cuda.bindings import driver

MIB = 1 << 20


def check(result: tuple[Any, ...]) -> Any:
    code, *values = result
    if int(code) != 0:
        raise RuntimeError(f"the driver said {code!r}")
    return values[0] if values else None


def begin() -> dict[str, Any]:
    check(driver.cuInit(0))
    check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(0))))
    name = check(driver.cuDeviceGetName(256, check(driver.cuDeviceGet(0))))
    version = {"driver API": str(check(driver.cuDriverGetVersion()))}
    return {"gpu": name.decode().split("\0")[0].strip(), "versions": version}


def host_memory(size: int, is_pinned: bool) -> tuple[int, Any]:
    """Its address, and what keeps it."""
    if is_pinned:
        address = int(check(driver.cuMemHostAlloc(size, 0)))
        return address, None
    pages = mmap.mmap(-1, size)
    return ctypes.addressof(ctypes.c_char.from_buffer(pages)), pages


def new_stream() -> Any:
    return check(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))


class _Copy:
    """A request is one copy of 1 MiB, waited for. Its result: whether the bytes that should be there are."""

    paced_by_arrivals = True
    to_gpu, is_pinned = True, True

    def __init__(self) -> None:
        self.about = begin()
        self._host, self._keep = host_memory(MIB, self.is_pinned)
        self._gpu = int(check(driver.cuMemAlloc(MIB)))
        self._stream = new_stream()
        ctypes.memset(self._host, 7, MIB)
        check(driver.cuMemcpyHtoD(self._gpu, self._host, MIB))
        for number in range(20):
            self.request(number)

    def prepare(self) -> None:
        pass

    def load_seconds(self, source: random.Random) -> float:
        return 0.0

    def request(self, number: int) -> bytes:
        if self.to_gpu:
            check(driver.cuMemcpyHtoDAsync(self._gpu, self._host, MIB, self._stream))
        else:
            check(driver.cuMemcpyDtoHAsync(self._host, self._gpu, MIB, self._stream))
        check(driver.cuStreamSynchronize(self._stream))
        return ctypes.string_at(self._host + MIB - 16, 16)


class Send(_Copy):
    pass


class Fetch(_Copy):
    to_gpu = False


class SendPageable(_Copy):
    is_pinned = False


class FetchPageable(_Copy):
    to_gpu, is_pinned = False, False


class Flood:
    """64 MiB to the GPU and 64 MiB from it at the same time, pinned, again and again."""

    BYTES = 64 * MIB
    is_pinned = True

    def __init__(self) -> None:
        self.about = begin()
        self._out, self._keep_out = host_memory(self.BYTES, self.is_pinned)
        self._home, self._keep_home = host_memory(self.BYTES, self.is_pinned)
        ctypes.memset(self._out, 3, self.BYTES)
        self._gpu = [int(check(driver.cuMemAlloc(self.BYTES))) for _ in range(2)]
        check(driver.cuMemcpyHtoD(self._gpu[1], self._out, self.BYTES))
        self._streams = [new_stream(), new_stream()]
        flags = driver.CUevent_flags.CU_EVENT_BLOCKING_SYNC
        self._events = [[check(driver.cuEventCreate(flags)) for _ in range(2)] for _ in range(3)]
        self._steps = 0

    def prepare(self) -> None:
        ctypes.memset(self._home, 0, self.BYTES)

    def step(self) -> Callable[[], object]:
        there, back = self._streams
        check(driver.cuMemcpyHtoDAsync(self._gpu[0], self._out, self.BYTES, there))
        check(driver.cuMemcpyDtoHAsync(self._home, self._gpu[1], self.BYTES, back))
        self._steps += 1
        events = self._events[self._steps % len(self._events)]
        for event, stream in zip(events, self._streams, strict=True):
            check(driver.cuEventRecord(event, stream))

        def wait() -> None:
            for event in events:
                check(driver.cuEventSynchronize(event))

        return wait

    def snapshot(self) -> Callable[[], bytes]:
        def read() -> bytes:
            for stream in self._streams:
                check(driver.cuStreamSynchronize(stream))
            return ctypes.string_at(self._home, 4096) + ctypes.string_at(self._home + self.BYTES - 4096, 4096)

        return read


class FloodPageable(Flood):
    """The same with pageable memory: the driver copies it through buffers of its own."""

    BYTES = 16 * MIB
    is_pinned = False
