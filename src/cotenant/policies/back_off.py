"""What proved wrong is not tried again for a while, and for twice as long each time that it proves wrong again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class BackOff:
    """On any clock that only grows."""

    next_us: float  # how long the next one lasts
    longest_us: float
    until_us: float = 0.0

    def holds(self, now_us: float) -> bool:
        return now_us < self.until_us

    def begin(self, now_us: float) -> None:
        self.until_us = now_us + self.next_us
        self.next_us = min(2 * self.next_us, self.longest_us)
