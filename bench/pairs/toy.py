"""Jobs that need no GPU: they sleep. To try the benchmark, and to test it."""

from __future__ import annotations

import hashlib
import importlib
import random
import time
from collections.abc import Callable
from typing import Any

ABOUT: dict[str, Any] = {"gpu": "no GPU", "versions": {}}


class Service:
    about = ABOUT
    paced_by_arrivals = True

    def prepare(self) -> None:
        pass

    def load_seconds(self, source: random.Random) -> float:
        return 0.0

    def gpu_ms(self) -> float:
        return 2.0

    def request(self, number: int) -> bytes:
        time.sleep(0.002)
        return str(number).encode()


class Training(Service):
    paced_by_arrivals = False

    def prepare(self) -> None:
        self._state = b""

    def load_seconds(self, source: random.Random) -> float:
        return source.uniform(0.002, 0.004)

    def request(self, number: int) -> bytes:
        time.sleep(0.002)
        self._state = hashlib.sha256(self._state).digest()
        return self._state


class Work:
    about = ABOUT

    def prepare(self) -> None:
        self._steps = 0

    def step(self) -> Callable[[], object]:
        self._steps += 1
        ready = time.monotonic() + 0.004
        return lambda: time.sleep(max(0.0, ready - time.monotonic()))

    def snapshot(self) -> Callable[[], bytes]:
        steps = self._steps
        return lambda: str(steps).encode()


class Missing(Work):
    def __init__(self) -> None:
        importlib.import_module("a_library_that_does_not_exist")


class Dying(Work):
    def step(self) -> Callable[[], object]:
        raise RuntimeError("the toy died on purpose")
