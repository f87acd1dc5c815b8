"""The part of production's pauses in which the lower classes ran lately.

    part = ran / idle     both recent: what is RECENT_US old counts a third
         = 1              while they have no rate

A rate is spent in turns of 20 ms, and not all of it by lower classes that wait for their own CPU: what slowed a window
down is what they ran, not what they were allowed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cotenant.policies.guard.position import STRICT

RECENT_US = 100_000.0


@dataclass(slots=True)
class Duty:
    ran_us: float = 0.0
    idle_us: float = 0.0
    is_limited: bool = False

    def see(self, ran_us: float, idle_us: float, step_us: float, allowed: float) -> float:
        """`allowed`: the part that they were allowed. Returns the part that they have had."""
        was_limited, self.is_limited = self.is_limited, allowed < STRICT
        if not was_limited:
            # What they ran before they had a rate says nothing about it.
            self.ran_us = allowed * self.idle_us
        kept = math.exp(-step_us / RECENT_US)
        self.ran_us = self.ran_us * kept + ran_us
        self.idle_us = self.idle_us * kept + max(idle_us, 0.0)
        return min(self.ran_us / self.idle_us, STRICT) if self.is_limited and self.idle_us else allowed
