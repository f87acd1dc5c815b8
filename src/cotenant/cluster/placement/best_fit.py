"""best-fit: the fullest GPU that still has room.

    left = (free share - share) + (free memory - memory) / memory of the GPU
    the GPU of the least `left`

Small jobs fill GPUs up, and whole GPUs stay free for large jobs.
"""

from __future__ import annotations

from cotenant.cluster.placement.fleet import Fleet, Job
from cotenant.cluster.placement.interface import Candidates, Placement, Places, least, left_over
from cotenant.cluster.placement.interference import Interference


class BestFit(Placement):
    name = "best-fit"
    title = "the fullest GPU that still has room"

    def choose(
        self, job: Job, candidates: Candidates, fleet: Fleet, interference: Interference
    ) -> Places | None:
        return least(candidates, left_over(job, candidates, fleet), job.gpus)
