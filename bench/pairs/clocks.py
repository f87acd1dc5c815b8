"""How fast the GPU runs meanwhile: at its power limit it lowers its clock, for all jobs alike."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator

_QUERY = ["nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits", "-lms", "100"]


class Clocks:
    def __init__(self) -> None:
        self._seen: list[tuple[float, float]] = []  # when, MHz

    def note(self, moment: float, text: str) -> None:
        with contextlib.suppress(ValueError):
            self._seen.append((moment, float(text)))

    def between(self, begin: float, end: float) -> float | None:
        """The mean; None where nobody looked."""
        found = [mhz for moment, mhz in self._seen if begin <= moment <= end]
        return statistics.mean(found) if found else None


@contextlib.contextmanager
def watched() -> Iterator[Clocks]:
    """Of the first GPU, while this lasts; without nvidia-smi nothing is seen."""
    clocks = Clocks()
    try:
        looking = subprocess.Popen(
            _QUERY, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, text=True
        )
    except OSError:
        yield clocks
        return
    assert looking.stdout
    lines = looking.stdout

    def listen() -> None:
        for line in lines:
            clocks.note(time.monotonic(), line)

    threading.Thread(target=listen, daemon=True).start()
    try:
        yield clocks
    finally:
        looking.terminate()
        looking.wait()
