"""What the test programs of lanes share: production work that keeps going, in a process with lanes."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from soft import Gpu, check, driver  # type: ignore[import-not-found]

from cotenant import segment

gpu = Gpu()
kernel = gpu.kernel("empty")
STANDSTILL = 0.25  # native/tenant/lanes.cpp
PATIENCE = float(os.environ.get("COTENANT_TEST_PATIENCE") or 1)
BUSY = driver.CUresult.CUDA_ERROR_NOT_READY


def is_done(stream: Any) -> bool:
    return bool(driver.cuStreamQuery(stream)[0] != BUSY)


def launch(stream: Any, times: int = 1) -> None:
    for _ in range(times):
        gpu.launch(kernel, stream)


def finish(stream: Any) -> None:
    check(driver.cuStreamSynchronize(stream))


def until(what: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds * PATIENCE
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.001)


def are_idle() -> bool:
    """All tenants of the segment: none of their streams has a place to stand any more."""
    seen = segment.read(Path(os.environ["COTENANT_SEGMENT"]))
    return not any(use.busy for one in seen.tenants for use in one.uses)


def in_thread(act: Callable[[], None]) -> threading.Thread:
    def run() -> None:
        gpu.use()
        act()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


class Production:
    """The process's own work. Its stream is not empty before the end, and `rounds` counts what it has done beside.
    Where it gets no processor for so long that it seems to stand still, nothing is said of what it holds back."""

    def __init__(self) -> None:
        self.rounds = 0
        self.stream = gpu.stream()
        word = check(driver.cuMemHostAlloc(64, driver.CU_MEMHOSTALLOC_DEVICEMAP))
        self.word = ctypes.c_uint32.from_address(int(word))
        self.address = check(driver.cuMemHostGetDevicePointer(word, 0))
        self.stops = False

    def __enter__(self) -> Production:
        self.word.value, self.stops, self.longest, self.last = 0, False, 0.0, time.monotonic()
        launch(self.stream)
        check(driver.cuStreamWaitValue32(self.stream, self.address, 1, 0))
        self.thread = in_thread(self.goes_round)
        self.does(2)
        return self

    def goes_round(self) -> None:
        stream = gpu.stream()
        while not self.stops:
            launch(stream)
            finish(stream)
            now = time.monotonic()
            self.longest, self.last = max(self.longest, now - self.last), now
            self.rounds += 1

    @property
    def stood_still(self) -> bool:
        return max(self.longest, time.monotonic() - self.last) > STANDSTILL / 2

    def does(self, rounds: int) -> None:
        goal = self.rounds + rounds
        until(lambda: self.rounds >= goal)

    def __exit__(self, *_: object) -> None:
        self.stops = True
        self.thread.join()
        self.word.value = 1
        finish(self.stream)
