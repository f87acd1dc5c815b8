"""first-fit: the first GPU with room.

    the lowest number among the GPUs whose free share and free memory hold the job

The stock Kubernetes scheduler does the same with the devices of a pool, in the order of its slices.
"""

from __future__ import annotations

from cotenant.cluster.placement.fleet import Fleet, Job
from cotenant.cluster.placement.interface import Candidates, Placement, Places
from cotenant.cluster.placement.interference import Interference


class FirstFit(Placement):
    name = "first-fit"
    title = "the first GPU with room"

    def choose(
        self, job: Job, candidates: Candidates, fleet: Fleet, interference: Interference
    ) -> Places | None:
        return tuple(int(gpu) for gpu in candidates[: job.gpus])
