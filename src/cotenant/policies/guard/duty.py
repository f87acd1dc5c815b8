"""The part of production's pauses in which the lower classes ran lately.

    part = ran / idle     both recent: what is RECENT_US old counts a third
         = 1              while they have no rate
         = 0              while production has no pauses: then nothing that is seen is their doing

    idle = share of production's time at work that is pauses, a running mean of the last half a second

A rate is spent in turns of 20 ms, and not all of it by lower classes that wait for their own CPU: what slowed a window
down is what they ran, not what they were allowed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cotenant.policies.guard.position import STRICT

RECENT_US, IDLE_US = 100_000.0, 500_000.0
NO_PAUSES = 0.05  # share of the time


@dataclass(slots=True)
class Duty:
    ran_us: float = 0.0
    idle_us: float = 0.0
    is_limited: bool = False
    idle: float = 0.5

    def see(self, ran_us: float, idle_us: float, step_us: float, allowed: float, works: bool) -> float:
        """`allowed`: the part that they were allowed; `works`: production does. Returns the part that they have had."""
        if step_us and works:
            part = min(max(idle_us / step_us, 0.0), 1.0)
            self.idle += min(step_us / IDLE_US, 1.0) * (part - self.idle)
        was_limited, self.is_limited = self.is_limited, allowed < STRICT
        if not was_limited:
            # What they ran before they had a rate says nothing about it.
            self.ran_us = allowed * self.idle_us
        kept = math.exp(-step_us / RECENT_US)
        self.ran_us = self.ran_us * kept + ran_us
        self.idle_us = self.idle_us * kept + max(idle_us, 0.0)
        if self.idle_us < NO_PAUSES * RECENT_US:
            return 0.0
        return min(self.ran_us / self.idle_us, STRICT) if self.is_limited else allowed
