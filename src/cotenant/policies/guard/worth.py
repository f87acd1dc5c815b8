"""Whether overlap is worth it: what the lower classes get done while production tolerates them, and what in its gaps
only.

    gain = their rate at TOLERANT / their rate at STRICT - 1

Both rates are recent: what is HALF_LIFE_US old counts half. Where the gain is under GAIN (under 0 where overlap slows
production down less than turns do, reserve.py), overlap is not worth it for a minute, and for twice as long each time
that this proves so again. In one MPS daemon overlap with all SMs is what the jobs are there for: nobody asks.
"""

from __future__ import annotations

from dataclasses import dataclass

from cotenant.policies.back_off import BackOff
from cotenant.policies.guard.position import STRICT, TOLERANT

GAIN = 0.05
HALF_LIFE_US, ENOUGH_US = 10_000_000, 1_000_000
FIRST_BACK_OFF_US, LONGEST_BACK_OFF_US = 60_000_000, 600_000_000


@dataclass(slots=True)
class Harvest:
    """The recent work of the lower classes at a level."""

    operations: float = 0.0
    time_us: float = 0.0

    def add(self, operations: int, time_us: float) -> None:
        kept = 0.5 ** (time_us / HALF_LIFE_US)
        self.operations = self.operations * kept + operations
        self.time_us = self.time_us * kept + time_us

    @property
    def rate(self) -> float:
        return self.operations / self.time_us if self.time_us else 0.0


class Worth:
    def __init__(self) -> None:
        self.harvest = {STRICT: Harvest(), TOLERANT: Harvest()}
        self.back_off = BackOff(FIRST_BACK_OFF_US, LONGEST_BACK_OFF_US)

    def may_be_tried(self, now_us: float) -> bool:
        """Before overlap is tried, the work of the lower classes without it must be known."""
        return self.harvest[STRICT].time_us >= ENOUGH_US and not self.back_off.holds(now_us)

    def forget_overlap(self) -> None:
        self.harvest[TOLERANT] = Harvest()

    def weigh(
        self, level: float, done: int, time_us: float, now_us: float, needed: float = GAIN
    ) -> float | None:
        """With what they got done at a level. Returns the gain where it has just proved smaller than needed."""
        if level not in self.harvest:
            return None
        self.harvest[level].add(done, time_us)
        strict, tolerant = self.harvest[STRICT], self.harvest[TOLERANT]
        if min(strict.time_us, tolerant.time_us) < ENOUGH_US or not strict.rate:
            return None
        gain = tolerant.rate / strict.rate - 1
        if gain >= needed:
            return None
        self.forget_overlap()
        self.back_off.begin(now_us)
        return gain
