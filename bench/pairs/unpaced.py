"""Light production jobs as opportunistic ones: one request after the other, as batch inference has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import generation
import production


class _Unpaced:
    build: Any

    def __init__(self) -> None:
        self._job = self.build()
        self.about = self._job.about
        self._done, self._result = 0, b""

    def prepare(self) -> None:
        self._done = 0

    def step(self) -> Callable[[], object]:
        """These requests wait for their own results: nothing is left to wait for."""
        self._result = self._job.request(self._done)
        self._done += 1
        return lambda: None

    def snapshot(self) -> Callable[[], bytes]:
        result = self._result
        return lambda: result


class Vision(_Unpaced):
    build = staticmethod(production.Vision)


class Generate(_Unpaced):
    build = staticmethod(generation.Generate)
