"""gandiva: pack where it pays, and move jobs away where it does not (after Gandiva, OSDI 2018).

    newcomer      an empty GPU; else, of the GPUs on which no promise would break, the one where the sum of the
                  predicted speeds grows most, if it grows by MIN_GAIN or more; else it waits
    each round    a job that shares a GPU moves to an empty one while no job waits for that GPU: first the job that
                  is slowest now, at most MOST_MOVES a round
                  where a promise is predicted broken, an opportunistic job moves to the GPU where it loses least

Gandiva packs jobs by trial: it measures the packed pair and unpacks it when the sum of the speeds falls. Here the sum
is predicted before anything is moved. Its checkpoints between GPUs are our pause and resume: the job's memory waits on
the host while the job changes GPUs, and the caller decides what a move costs. Only opportunistic jobs of one GPU move.
Growing and shrinking a job's number of GPUs needs the job's own code and is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cotenant.cluster.placement.fleet import LEFT_OVER, Fleet, GpuNumber, Job
from cotenant.cluster.placement.interface import (
    Candidates,
    Decision,
    Placement,
    Places,
    by_residents,
    keeps_promises,
    least,
)
from cotenant.cluster.placement.interference import Interference

MIN_GAIN = 0.1  # of a GPU's work
MOST_MOVES = 16
NEVER = -1e6


class Gandiva(Placement):
    name = "gandiva"
    title = "Gandiva: packing where the sum of the speeds grows, migration by pause and resume"
    moves_jobs = True

    def decide(self, waiting: Sequence[Job], fleet: Fleet, interference: Interference) -> Decision:
        fleet = fleet.copy()
        placed = self.place_in_turn(waiting, fleet, interference)
        new = set(placed)
        moved = self._unpacked(fleet, interference, new)
        return Decision(placed=placed, moved=moved)

    def choose(
        self, job: Job, candidates: Candidates, fleet: Fleet, interference: Interference
    ) -> Places | None:
        if job.layer != LEFT_OVER:  # it has its share whoever is there
            return least(candidates, fleet.tenants[candidates].astype(np.float64), job.gpus)
        gains = by_residents(candidates, fleet, lambda residents: gain(job, residents, interference))
        pays = gains >= MIN_GAIN
        if pays.sum() < job.gpus:
            return None
        return least(candidates[pays], -gains[pays], job.gpus)

    def _unpacked(self, fleet: Fleet, interference: Interference, new: set[str]) -> dict[str, Places]:
        moved: dict[str, Places] = {}
        for _, gpu, job in sorted(self._movable(fleet, interference, new), key=lambda one: one[0]):
            if len(moved) == MOST_MOVES:
                break
            to = self._better_place(job, gpu, fleet, interference)
            if to is not None:
                fleet.remove(job)
                fleet.add(job, (to,))
                moved[job.id] = (to,)
        return moved

    def _movable(
        self, fleet: Fleet, interference: Interference, new: set[str]
    ) -> list[tuple[float, GpuNumber, Job]]:
        """Jobs that share a GPU, with their speeds; jobs of a broken promise have one below 0, and so come first.
        Without an empty GPU only they have somewhere to go."""
        has_empty = bool((fleet.tenants == 0).any())
        packed = np.flatnonzero(fleet.tenants > 1)
        _, first, place = np.unique(fleet.groups[packed], return_index=True, return_inverse=True)
        speeds = [self._speeds(fleet.residents[gpu], interference) for gpu in packed[first]]
        found = []
        for gpu, group in zip(packed.tolist(), place.tolist(), strict=True):
            if not has_empty and min(speeds[group]) >= 0:
                continue
            for job, speed in zip(fleet.residents[gpu], speeds[group], strict=True):
                if job.layer == LEFT_OVER and job.gpus == 1 and job.id not in new:
                    found.append((speed, gpu, job))
        return found

    def _speeds(self, residents: tuple[Job, ...], interference: Interference) -> list[float]:
        slowdowns = interference.slowdowns([job.part for job in residents])
        fault = 0 if keeps_promises(residents, slowdowns) else 2
        return [1 / slowdown - fault for slowdown in slowdowns]

    def _better_place(
        self, job: Job, gpu: GpuNumber, fleet: Fleet, interference: Interference
    ) -> GpuNumber | None:
        others = tuple(one for one in fleet.residents[gpu] if one.id != job.id)
        if not others:
            return None  # the others have moved away meanwhile
        here = gain(job, others, interference)
        fits = np.flatnonzero(fleet.fits(job))
        there = fits if here <= NEVER else fits[fleet.tenants[fits] == 0]
        there = there[there != gpu]
        if not len(there):
            return None
        gains = by_residents(there, fleet, lambda residents: gain(job, residents, interference))
        best = int(np.argmax(gains))
        return int(there[best]) if gains[best] >= max(here, 0.0) + MIN_GAIN else None


def gain(job: Job, residents: tuple[Job, ...], interference: Interference) -> float:
    """By how much the sum of the speeds grows when the job is added; NEVER where it breaks a promise."""
    jobs = [*residents, job]
    after = interference.slowdowns([one.part for one in jobs])
    if not keeps_promises(jobs, after):
        return NEVER
    before = interference.slowdowns([one.part for one in residents])
    return sum(1 / slowdown for slowdown in after) - sum(1 / slowdown for slowdown in before)
