"""exclusive: a GPU belongs to one job, as clusters without sharing have it. The baseline.

the first GPU on which nobody is
"""

from __future__ import annotations

from cotenant.cluster.placement.fleet import Fleet, Job
from cotenant.cluster.placement.interface import Candidates, Placement, Places
from cotenant.cluster.placement.interference import Interference


class Exclusive(Placement):
    name = "exclusive"
    title = "no sharing: a GPU for each job"
    shares_gpus = False

    def choose(
        self, job: Job, candidates: Candidates, fleet: Fleet, interference: Interference
    ) -> Places | None:
        empty = candidates[fleet.tenants[candidates] == 0][: job.gpus]
        return tuple(int(gpu) for gpu in empty) if len(empty) == job.gpus else None
