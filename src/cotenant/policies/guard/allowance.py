"""How long the lower classes may be shut for learning alone: SHARE of the time in which they want to run.

Unused time is saved, up to SAVED_US; SAVED_US is also what there is at the beginning. guard borrows up to as
much for a job with a promise that it knows nothing of yet, or that is never idle and seems to have changed.
"""

from __future__ import annotations

from dataclasses import dataclass

SHARE = 0.05
SAVED_US = 1_000_000.0
LEAST_US = 400_000.0  # a whole look: a shorter one may learn nothing, and has used it up


@dataclass(slots=True)
class Allowance:
    left_us: float = SAVED_US
    is_told: bool = False  # that it is used up

    def is_enough(self, borrows: bool) -> bool:
        return self.left_us + borrows * SAVED_US >= LEAST_US

    def is_spent(self, borrows: bool) -> bool:
        return self.left_us + borrows * SAVED_US <= 0

    def pass_time(self, step_us: float, learning: bool) -> None:
        self.left_us = min(self.left_us + SHARE * step_us, SAVED_US) - (step_us if learning else 0.0)
