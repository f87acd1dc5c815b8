"""How long everything beside a benchmark's windows takes, in seconds."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Pace:
    # From an order to its window's start: jobs go back to their first state, and the opportunistic one sets off.
    notice: float = 0.4
    warm_up: float = 0.4
    # In a tenant's first second guard learns what production costs alone, and keeps the others off for that, once.
    learning: float = 1.5
    # Of a run before, in which a job is at work for the second that `cotenant run` wants to have seen of it.
    rehearsal: float = 1.5


MEASURED = Pace()
HURRIED = Pace(notice=0.2, warm_up=0.05, learning=0.05)  # to see that it works, not to measure
