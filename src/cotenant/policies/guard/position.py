"""The position of guard, a number from 0 to 2.

    SHUT      lower classes are shut
    STRICT    they run while production is idle
    TOLERANT  they may overlap with production

These three are levels. Below STRICT the lower classes have a rate, a part of production's pauses. guard shuts them to
learn what production costs alone, and for nothing else.

    rate = position * idle share of production's time

Between STRICT and TOLERANT guard alternates, so that the mean over the job's busy time is the position, and so is the
mean over its idle time. With the part of the position that is above STRICT:

    owed += (part - 1 if TOLERANT is held else part) * passed
    TOLERANT where owed > 0, for 20 ms at least

    passed = d(busy_us) / (2 * busy share) + d(idle_us) / (2 * idle share)

While the lower classes are shut to learn, the mixer adds up what a position under STRICT owes them, and gives it back
within about REPAID_US.
"""

from __future__ import annotations

SHUT, STRICT, TOLERANT = 0.0, 1.0, 2.0

HOLD_US = 20_000
REPAID_US, MOST_DEBT_US = 2_000_000.0, 500_000.0
MOST_OWED_US = 100_000.0


class Mixer:
    """Takes levels in turn, and parts of STRICT."""

    def __init__(self) -> None:
        self.level = STRICT
        self.duty = STRICT  # part of the pauses that the lower classes have, or had until they were shut
        self.owed_us = 0.0  # to TOLERANT
        self.debt_us = 0.0  # from times of learning
        self.held_us = 0.0  # since when

    def take(self, level: float, now_us: float, duty: float = STRICT) -> None:
        self.duty = duty
        if level != self.level:
            self.level, self.held_us = level, now_us

    def learn(self, position: float, passed_us: float, now_us: float) -> None:
        """Those below are shut, whatever the position."""
        self.take(SHUT, now_us, self.duty)
        if position < STRICT:
            self.debt_us = min(self.debt_us + position * passed_us, MOST_DEBT_US)

    def follow(self, position: float, passed_us: float, now_us: float) -> None:
        """`passed_us`: since the last tick, for the job whose position it is."""
        if position < STRICT:
            repaid = min(self.debt_us / REPAID_US, STRICT - position)
            self.debt_us -= repaid * passed_us
            self.owed_us = 0.0
            self.take(STRICT, now_us, position + repaid)
            return
        self.debt_us = 0.0
        if position in (STRICT, TOLERANT):
            self.owed_us = 0.0
            self.take(position, now_us)
            return
        owed = self.owed_us + (position - STRICT - (self.level == TOLERANT)) * passed_us
        self.owed_us = min(max(owed, -MOST_OWED_US), MOST_OWED_US)
        if now_us - self.held_us >= HOLD_US or self.level == SHUT:
            self.take(TOLERANT if self.owed_us > 0 else STRICT, now_us)


def in_words(position: float, sm_share: float = 1.0) -> str:
    with_fewer = f" with {sm_share:.0%} of the SMs" if sm_share < 1 else ""
    if position == SHUT:
        return "others are shut"
    if position < STRICT:
        return f"others have {position:.0%} of its gaps"
    if position == STRICT:
        return "others run in its gaps"
    if position < TOLERANT:
        return f"others may overlap{with_fewer} {position - STRICT:.0%} of the time"
    return f"others may always overlap{with_fewer}"
