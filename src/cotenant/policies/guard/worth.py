"""Whether overlap is worth it: what the lower classes get done while production tolerates them, and what in its gaps
only.

    gain     = done at TOLERANT / expected - 1
    expected = done at STRICT * what production's pauses would have been then, had it done at STRICT what it did at
               TOLERANT / what they were at STRICT

so that it does not matter whether production happened to have more to do at one level than at the other. What it did
is counted by how long that takes alone, whichever job did it. What is HALF_LIFE_US old counts half. Where the gain is
under GAIN (under 0 where overlap slows production down less than turns do, reserve.py), overlap is not worth it for a
minute, and for twice as long each time that this proves so again. In one MPS daemon overlap with all SMs is what the
jobs are there for: nobody asks.
"""

from __future__ import annotations

from dataclasses import dataclass

from cotenant.policies.back_off import BackOff
from cotenant.policies.guard.position import STRICT, TOLERANT

GAIN = 0.05
HALF_LIFE_US, ENOUGH_US = 10_000_000, 1_000_000
LEAST_PAUSES = 0.01  # of the time
FIRST_BACK_OFF_US, LONGEST_BACK_OFF_US = 60_000_000, 600_000_000


@dataclass(frozen=True, slots=True)
class Harvest:
    """What the lower classes did in some time, and production beside them."""

    done: float = 0.0  # operations of the lower classes
    time_us: float = 0.0
    busy_us: float = 0.0  # production
    work_us: float = 0.0  # how long what production did takes alone

    def __add__(self, new: Harvest) -> Harvest:
        kept = 0.5 ** (new.time_us / HALF_LIFE_US)
        return Harvest(
            self.done * kept + new.done,
            self.time_us * kept + new.time_us,
            self.busy_us * kept + new.busy_us,
            self.work_us * kept + new.work_us,
        )

    def pauses_us(self, busy_us: float) -> float:
        """Of production that was busy for so long. It is never quite without: ticks are coarse."""
        return max(self.time_us - busy_us, LEAST_PAUSES * self.time_us)


def expected(strict: Harvest, tolerant: Harvest) -> float:
    """Operations of the lower classes at STRICT, beside what production did at TOLERANT."""
    cost = strict.busy_us / strict.work_us if strict.work_us else 0.0
    return strict.done * tolerant.pauses_us(cost * tolerant.work_us) / strict.pauses_us(strict.busy_us)


class Worth:
    def __init__(self) -> None:
        self.harvest = {STRICT: Harvest(), TOLERANT: Harvest()}
        self.back_off = BackOff(FIRST_BACK_OFF_US, LONGEST_BACK_OFF_US)

    def may_be_tried(self, now_us: float) -> bool:
        """Before overlap is tried, the work of the lower classes without it must be known."""
        return self.harvest[STRICT].time_us >= ENOUGH_US and not self.back_off.holds(now_us)

    def forget_overlap(self) -> None:
        self.harvest[TOLERANT] = Harvest()

    def weigh(self, level: float, new: Harvest, now_us: float, needed: float = GAIN) -> float | None:
        """With what they got done at a level. Returns the gain where it has just proved smaller than needed."""
        if level not in self.harvest:
            return None
        self.harvest[level] += new
        strict, tolerant = self.harvest[STRICT], self.harvest[TOLERANT]
        if min(strict.time_us, tolerant.time_us) < ENOUGH_US or not strict.done:
            return None
        gain = tolerant.done / expected(strict, tolerant) - 1
        if gain >= needed:
            return None
        self.forget_overlap()
        self.back_off.begin(now_us)
        return gain
