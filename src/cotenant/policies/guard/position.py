"""The position of guard, a number from 0 to 2.

    SHUT      lower classes are shut
    STRICT    they run while production is idle
    TOLERANT  they may overlap with production

These three are levels. Between two of them guard alternates, so that the mean over the job's busy time is the position,
and so is the mean over its idle time. With the part of the position that is above the lower level:

    owed += (part - 1 if the upper level is held else part) * passed
    up where owed > 0, for 20 ms at least

    passed = d(busy_us) / (2 * busy share) + d(idle_us) / (2 * idle share)

Turns are as short as that allows: a neighbour that runs for 20 ms of 40 leaves the GPU under its power limit; one that
runs for 200 ms of 400 takes the clock down for half of the time (H200: 5 % slowdown instead of 18 %).

While the lower classes are shut to learn what production costs alone, the mixer adds up what a position under STRICT
owes them, and gives it back after that.
"""

from __future__ import annotations

SHUT, STRICT, TOLERANT = 0.0, 1.0, 2.0

HOLD_US = 20_000
REPAID_US, MOST_DEBT_US = 200_000.0, 500_000.0
MOST_OWED_US = 100_000.0


class Mixer:
    """Takes levels in turn."""

    def __init__(self) -> None:
        self.level = STRICT
        self.position = STRICT
        self.owed_us = 0.0  # to the upper of the two levels
        self.debt_us = 0.0  # from times of learning
        self.held_us = 0.0  # since when

    def take(self, level: float, now_us: float) -> None:
        if level != self.level:
            self.level, self.held_us = level, now_us

    def learn(self, position: float, passed_us: float, now_us: float) -> None:
        """Those below are shut, whatever the position."""
        self.take(SHUT, now_us)
        if position < STRICT:
            self.debt_us = min(self.debt_us + position * passed_us, MOST_DEBT_US)

    def follow(self, position: float, passed_us: float, now_us: float) -> None:
        """`passed_us`: since the last tick, for the job whose position it is."""
        low = STRICT if position >= STRICT else SHUT
        if (self.position >= STRICT) != (position >= STRICT):
            self.owed_us = 0.0
        self.position = position
        part = position - low
        if low == STRICT:
            self.debt_us = 0.0
        repaid = min(self.debt_us / REPAID_US, (1 - part) / 2)
        self.debt_us = max(self.debt_us - repaid * passed_us, 0.0)
        part += repaid
        if not 0.0 < part < 1.0:
            self.owed_us = 0.0
            self.take(low + part, now_us)
            return
        owed = self.owed_us + (part - (self.level > low)) * passed_us
        self.owed_us = min(max(owed, -MOST_OWED_US), MOST_OWED_US)
        if now_us - self.held_us >= HOLD_US or self.level not in (low, low + 1):
            self.take(low + (self.owed_us > 0), now_us)


def in_words(position: float) -> str:
    if position == SHUT:
        return "others are shut"
    if position < STRICT:
        return f"others are shut {STRICT - position:.0%} of the time"
    if position == STRICT:
        return "others run in its gaps"
    if position < TOLERANT:
        return f"others may overlap {position - STRICT:.0%} of the time"
    return "others may always overlap"
