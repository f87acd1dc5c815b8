"""worst-fit: the emptiest GPU.

    left = (free share - share) + (free memory - memory) / memory of the GPU
    the GPU of the greatest `left`

Jobs are spread, so few share a GPU while there are GPUs enough.
"""

from __future__ import annotations

from cotenant.cluster.placement.fleet import Fleet, Job
from cotenant.cluster.placement.interface import Candidates, Placement, Places, least, left_over
from cotenant.cluster.placement.interference import Interference


class WorstFit(Placement):
    name = "worst-fit"
    title = "the emptiest GPU"

    def choose(
        self, job: Job, candidates: Candidates, fleet: Fleet, interference: Interference
    ) -> Places | None:
        return least(candidates, -left_over(job, candidates, fleet), job.gpus)
