"""Where the lever of guard stands: a position, counted in steps.

    SHUT      those below are shut
    STRICT    they run while production is idle
    TOLERANT  production tolerates company

These three are levels, STEPS apart. Between two of them both are taken in turn, HOLD_US each, so that the mean is the
position.
"""

from __future__ import annotations

STEPS = 20
SHUT, STRICT, TOLERANT = 0, STEPS, 2 * STEPS
HOLD_US = 40_000


class Mixer:
    """Takes levels in turn."""

    def __init__(self) -> None:
        self.level = STRICT
        self.owed = 0  # steps of the position that the levels taken so far still owe
        self.hold_until_us = 0.0

    def take(self, level: int) -> None:
        self.level, self.hold_until_us = level, 0.0

    def follow(self, position: int, now_us: float) -> None:
        if now_us < self.hold_until_us:
            return
        up, self.owed = divmod(self.owed + position % STEPS, STEPS)
        self.level = (position // STEPS + up) * STEPS
        self.hold_until_us = now_us + HOLD_US


def mixing_period_us(position: int) -> float:
    """After so long, both levels have had their share."""
    part = position % STEPS
    return HOLD_US * STEPS / min(part, STEPS - part) if part else 0.0


def in_words(position: int) -> str:
    if position == SHUT:
        return "others are shut"
    if position < STRICT:
        return f"others are shut {(STRICT - position) / STEPS:.0%} of the time"
    if position == STRICT:
        return "others run in its pauses"
    if position < TOLERANT:
        return f"others may overlap {(position - STRICT) / STEPS:.0%} of the time"
    return "others may always overlap"
