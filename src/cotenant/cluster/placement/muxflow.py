"""muxflow: offline jobs are matched with GPUs so that together they are fastest (MuxFlow, 2023).

    weight(offline job, GPU) = predicted speed of the job there (1 / slowdown)
                             + change that it makes to the speeds of the opportunistic jobs there
                             impossible where a promise would be broken, or where the job does not fit
    choose a matching (at most one job a GPU and round) of the greatest sum of weights

The matching is exact (scipy's Jonker-Volgenant; the paper divides a large cluster into parts and matches within each):
1,000 jobs and 1,000 GPUs take well under a second. A round matches the first MOST_AT_ONCE jobs of the queue. Jobs with
reserved shares are online work: they come first, where the fewest others are. Opportunistic jobs of several GPUs take
the best GPUs one after the other, since a matching has no groups.

The paper predicts the speed of pairs with a small network; here the prediction is `predict`'s (docs/cluster.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cotenant.cluster.placement.fleet import LEFT_OVER, Fleet, Job
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
from cotenant.errors import Problem

MOST_AT_ONCE = 2000
IMPOSSIBLE = -1e6  # far below what any matching of possible pairs can lose


class MuxFlow(Placement):
    name = "muxflow"
    title = "MuxFlow: a weighted matching of opportunistic jobs and GPUs by predicted speed"

    def decide(self, waiting: Sequence[Job], fleet: Fleet, interference: Interference) -> Decision:
        fleet = fleet.copy()
        single = [job for job in waiting if job.layer == LEFT_OVER and job.gpus == 1]
        others = [job for job in waiting if job.layer != LEFT_OVER or job.gpus > 1]
        placed = self.place_in_turn(others, fleet, interference)
        matched = single[:MOST_AT_ONCE]
        weights = weights_of(matched, fleet, interference)
        for row, gpu in matching(weights):
            placed[matched[row].id] = (gpu,)
        return Decision(placed=placed)

    def choose(
        self, job: Job, candidates: Candidates, fleet: Fleet, interference: Interference
    ) -> Places | None:
        if job.layer != LEFT_OVER:
            return least(candidates, fleet.tenants[candidates].astype(np.float64), job.gpus)
        weights = by_residents(candidates, fleet, lambda residents: weight(job, residents, interference))
        possible = weights > IMPOSSIBLE
        if possible.sum() < job.gpus:
            return None
        return least(candidates[possible], -weights[possible], job.gpus)


def weight(job: Job, residents: tuple[Job, ...], interference: Interference) -> float:
    jobs = [*residents, job]
    after = interference.slowdowns([one.part for one in jobs])
    if not keeps_promises(jobs, after):
        return IMPOSSIBLE
    before = interference.slowdowns([one.part for one in residents])
    lost = sum(
        1 / was - 1 / will
        for one, was, will in zip(residents, before, after, strict=False)
        if one.layer == LEFT_OVER
    )
    return 1 / after[-1] - lost


def weights_of(jobs: Sequence[Job], fleet: Fleet, interference: Interference) -> npt.NDArray[np.float64]:
    """A row a job, a column a GPU. Jobs of one kind and demand have the same row."""
    weights = np.full((len(jobs), len(fleet)), IMPOSSIBLE)
    rows: dict[object, npt.NDArray[np.float64]] = {}
    for number, job in enumerate(jobs):
        key = job.likeness
        if key not in rows:
            rows[key] = row(job, fleet, interference)
        weights[number] = rows[key]
    return weights


def row(job: Job, fleet: Fleet, interference: Interference) -> npt.NDArray[np.float64]:
    found = np.full(len(fleet), IMPOSSIBLE)
    candidates = np.flatnonzero(fleet.fits(job))
    if len(candidates):
        found[candidates] = by_residents(
            candidates, fleet, lambda residents: weight(job, residents, interference)
        )
    return found


def matching(weights: npt.NDArray[np.float64]) -> list[tuple[int, int]]:
    """Row and column of each pair, of the greatest sum; impossible pairs are left out."""
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError:
        raise Problem(
            "the placement policy 'muxflow' needs scipy", "pip install 'cotenant[cluster]'"
        ) from None
    if not weights.size:
        return []
    # A full cluster leaves few rows and columns with anything possible in them.
    is_possible = weights > IMPOSSIBLE
    wanted, there = np.flatnonzero(is_possible.any(axis=1)), np.flatnonzero(is_possible.any(axis=0))
    found = linear_sum_assignment(weights[np.ix_(wanted, there)], maximize=True)
    pairs = [(int(wanted[one]), int(there[two])) for one, two in zip(*found, strict=True)]
    return [pair for pair in pairs if is_possible[pair]]
