"""What a placement policy sees and what it decides: the border between placing and everything else.

A policy is pure: waiting jobs, a fleet and what is known of interference in, a decision out. The simulated cluster and
whatever places real jobs carry the decision out; neither asks which policy it is.

Most policies place one job after the other and only define `choose`. The order of the waiting jobs is the caller's. A
job that fits nowhere is passed over, and later jobs may overtake it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from cotenant.cluster.placement.fleet import Fleet, GpuNumber, Job
from cotenant.cluster.placement.interference import Interference

Candidates = npt.NDArray[np.intp]
Places = tuple[GpuNumber, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    placed: Mapping[str, Places] = field(default_factory=dict)  # by the waiting job's id
    moved: Mapping[str, Places] = field(default_factory=dict)  # running jobs: pause there, resume here


class Placement(ABC):
    name: ClassVar[str]
    title: ClassVar[str]  # a line for people
    moves_jobs: ClassVar[bool] = (
        False  # it may decide `moved`: jobs must be able to pause and resume elsewhere
    )
    shares_gpus: ClassVar[bool] = True

    def decide(self, waiting: Sequence[Job], fleet: Fleet, interference: Interference) -> Decision:
        fleet = fleet.copy()
        return Decision(placed=self.place_in_turn(waiting, fleet, interference))

    def place_in_turn(
        self, waiting: Sequence[Job], fleet: Fleet, interference: Interference
    ) -> dict[str, Places]:
        """One job after the other, each added to `fleet`."""
        placed: dict[str, Places] = {}
        refused: set[object] = set()  # nothing is freed in between: what did not fit once does not fit again
        for job in waiting:
            if job.likeness in refused or job.demand in refused:
                continue
            candidates = np.flatnonzero(fleet.fits(job))
            if len(candidates) < job.gpus:
                refused.add(job.demand)
                continue
            chosen = self.choose(job, candidates, fleet, interference)
            if chosen is None:
                refused.add(job.likeness)
            else:
                placed[job.id] = chosen
                fleet.add(job, chosen)
        return placed

    @abstractmethod
    def choose(
        self, job: Job, candidates: Candidates, fleet: Fleet, interference: Interference
    ) -> Places | None:
        """`job.gpus` of the candidates, on each of which it fits; None: it shall wait."""


def least(candidates: Candidates, costs: npt.NDArray[np.float64], count: int) -> Places:
    """The candidates of the least costs; among equals the one with the lowest number."""
    order = np.argsort(costs, kind="stable")[:count]
    return tuple(int(gpu) for gpu in candidates[order])


def left_over(job: Job, candidates: Candidates, fleet: Fleet) -> npt.NDArray[np.float64]:
    """What would stay free on each: of the layer's shares, plus of the memory, both as parts of the GPU."""
    shares = fleet.free_shares[job.layer, candidates] - job.share
    memory = (fleet.free_bytes[candidates] - job.memory_bytes) / fleet.memory_bytes[candidates]
    return np.asarray(shares + memory, dtype=np.float64)


def by_residents(
    candidates: Candidates, fleet: Fleet, value: Callable[[tuple[Job, ...]], float]
) -> npt.NDArray[np.float64]:
    """The value of each candidate, which follows from its residents' parts, layers and promises alone: few groups of
    them occur, and each is computed once."""
    _, first, place = np.unique(fleet.groups[candidates], return_index=True, return_inverse=True)
    values = np.array([value(fleet.residents[gpu]) for gpu in candidates[first]], dtype=np.float64)
    return np.asarray(values[place])


def keeps_promises(jobs: Sequence[Job], slowdowns: Sequence[float]) -> bool:
    return all(
        job.slowdown is None or slowdown <= 1 + job.slowdown + 1e-9
        for job, slowdown in zip(jobs, slowdowns, strict=True)
    )
