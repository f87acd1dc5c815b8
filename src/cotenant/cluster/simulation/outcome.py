"""What a simulated cluster did, as typed values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class JobOutcome:
    id: str
    kind: str
    is_production: bool
    gpus: int
    submitted_s: float
    begun_s: float
    ended_s: float
    alone_s: float  # how long it runs with its GPUs to itself
    moves: int
    broken_s: float  # for how long its promise was broken

    @property
    def completion_s(self) -> float:
        return self.ended_s - self.submitted_s

    @property
    def queued_s(self) -> float:
        return self.begun_s - self.submitted_s

    @property
    def stretch(self) -> float:
        """Completion, of what it takes alone and at once."""
        return self.completion_s / max(self.alone_s, 1e-9)


@dataclass(frozen=True, slots=True)
class ClusterOutcome:
    policy: str
    log: str
    sharing: str
    gpus: int
    jobs: tuple[JobOutcome, ...] = field(
        repr=False
    )  # those that ran, by arrival; services are not among them
    services: int
    arrivals_s: float  # from the first arrival to the last: utilisation is that of this time
    makespan_s: float
    utilisation: float  # part of the time in which a GPU has work
    sm_activity: float
    memory: float  # part of the memory that is taken
    production_s: float  # of services and production jobs together
    broken_s: float  # of it, with a broken promise
    moves: int
    never_ran: int  # jobs for which there was never room
    wall_seconds: float
    timeline: tuple[tuple[float, float, int], ...] = field(
        repr=False, default=()
    )  # hour, utilisation, jobs waiting

    @property
    def broken(self) -> float:
        """Part of production's time in which its promise was broken; not a number: there was no production."""
        return self.broken_s / self.production_s if self.production_s else math.nan

    def completions(self) -> list[float]:
        return [job.completion_s for job in self.jobs]

    @property
    def mean_completion_s(self) -> float:
        return mean(self.completions())

    @property
    def median_completion_s(self) -> float:
        return quantile(self.completions(), 0.5)

    @property
    def p99_completion_s(self) -> float:
        return quantile(self.completions(), 0.99)

    @property
    def mean_queued_s(self) -> float:
        return mean([job.queued_s for job in self.jobs])


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def quantile(values: Sequence[float], part: float) -> float:
    """The nearest rank."""
    if not values:
        return math.nan
    return sorted(values)[min(len(values) - 1, max(0, math.ceil(part * len(values)) - 1))]
