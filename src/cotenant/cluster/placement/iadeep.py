"""iadeep: where the predicted slowdown is least (IADeep, SC 2023).

    rise(GPU) = predicted slowdown of the newcomer there - 1
              + sum over the residents of (predicted slowdown with the newcomer - without)
    the GPU of the least rise; among equals the first

IADeep predicts with a small network over job types and utilisation columns; here the prediction is `predict`'s
(docs/cluster.md). Its second half, tuning the batch sizes of the jobs that share, needs the job's own code and is left
out. An empty GPU has no rise, so jobs are spread while there is one.
"""

from __future__ import annotations

from cotenant.cluster.placement.fleet import Fleet, Job
from cotenant.cluster.placement.interface import Candidates, Placement, Places, by_residents, least
from cotenant.cluster.placement.interference import Interference


class IADeep(Placement):
    name = "iadeep"
    title = "IADeep: where the predicted slowdown is least"

    def choose(
        self, job: Job, candidates: Candidates, fleet: Fleet, interference: Interference
    ) -> Places | None:
        rises = by_residents(candidates, fleet, lambda residents: rise(job, residents, interference))
        return least(candidates, rises, job.gpus)


def rise(job: Job, residents: tuple[Job, ...], interference: Interference) -> float:
    parts = [one.part for one in residents]
    before = interference.slowdowns(parts)
    after = interference.slowdowns([*parts, job.part])
    return sum(after) - 1 - sum(before)
