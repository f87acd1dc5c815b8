"""Notices when the machine stops: a thread that wants to sleep for a moment sleeps for long.

Virtual machines stop now and then. The requests that were due meanwhile are late, in every phase.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

NAP_SECONDS = 0.002
REMARKABLE_SECONDS = 0.02


class Stillness:
    def __init__(
        self, clock: Callable[[], float] = time.monotonic, nap: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock, self._nap = clock, nap
        self._ended = False
        self._seen_ms: list[float] = []
        self._thread = threading.Thread(target=self.watch, daemon=True)

    def __enter__(self) -> Stillness:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = True
        self._thread.join()

    def watch(self) -> None:
        while not self._ended:
            before = self._clock()
            self._nap(NAP_SECONDS)
            late = self._clock() - before - NAP_SECONDS
            if late > REMARKABLE_SECONDS:
                self._seen_ms.append(1000 * late)

    def take(self) -> list[float]:
        """How long it was each time since this was last asked, in milliseconds."""
        seen, self._seen_ms = self._seen_ms, []
        return seen
