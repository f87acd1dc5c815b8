"""Spinning kernels through NVIDIA's cuda-bindings: one tiny kernel, and what holds the GPU meanwhile."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from cotenant.demo.spin import SpinGpu

LONGEST_WAIT_SECONDS = 10.0


class _Spinning:
    def __init__(self, work_per_us: float | None) -> None:
        self.gpu = SpinGpu()
        if work_per_us is None:
            self.gpu.calibrate()
        else:
            self.gpu.work_per_us = work_per_us
        self.about = {
            "gpu": self.gpu.name,
            "versions": {"driver API": str(self.gpu.driver_version)},
            "work_per_us": self.gpu.work_per_us,
        }

    def prepare(self) -> None:
        self.gpu.reset_count()


class Tiny(_Spinning):
    """A request is one kernel of one thread, which counts; it ends when the count is seen in host memory."""

    paced_by_arrivals = True

    def __init__(self, work_per_us: float | None) -> None:
        super().__init__(work_per_us)
        self._seen = self.gpu.count_in_sight()

    def load_seconds(self, source: random.Random) -> float:
        return 0.0

    def request(self, number: int) -> bytes:
        before = self._seen.value
        self.gpu.submit_burst(0, 0.0)
        # Time is up: whatever is wrong, the driver says it.
        deadline = time.monotonic() + LONGEST_WAIT_SECONDS
        while self._seen.value == before and time.monotonic() < deadline:
            pass
        if self._seen.value == before:
            self.gpu.synchronise()
        return b""


class Ten(Tiny):
    """Ten kernels; the program waits for each before it launches the next, as a sampling loop does. A kernel that was
    cut for the first may run on in every gap."""

    def request(self, number: int) -> bytes:
        for _ in range(10):
            self.gpu.submit_burst(0, 0.0)
            self.gpu.synchronise()
        return b""


class _Holder(_Spinning):
    """Keeps the GPU full with kernels of one length."""

    kernels = 1
    kernel_us = 0.0

    def __init__(self, work_per_us: float | None) -> None:
        super().__init__(work_per_us)
        self._events = [self.gpu.new_event() for _ in range(3)]
        self._steps = 0

    def step(self) -> Callable[[], object]:
        self.gpu.submit_burst(self.kernels, self.kernel_us)
        self._steps += 1
        event = self._events[self._steps % len(self._events)]
        self.gpu.record(event)
        return lambda: self.gpu.wait(event)

    def snapshot(self) -> Callable[[], bytes]:
        return lambda: b""


class Spin11ms(_Holder):
    kernels, kernel_us = 2, 11_000.0


class Spin100us(_Holder):
    kernels, kernel_us = 50, 100.0
