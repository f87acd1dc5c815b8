"""kubeshare: labels first, then the fullest GPU (KubeShare, HPDC 2020).

    exclusion       a GPU has jobs of one exclusion word only (no word is a word too)
    anti-affinity   jobs of the same word go to different GPUs
    affinity        a job goes to the GPU where its word is, and nowhere else;
                    the first job of a word goes to an empty GPU, so that its followers find room
    otherwise       1. best fit among the used GPUs on which no affinity word is
                    2. worst fit among the GPUs with affinity words: room there is kept for their followers
                    3. an empty GPU

The three labels hold under every placement policy (`Fleet.fits`); the order of the steps is KubeShare's. Its fit is by
`gpu_request` and `gpu_mem`, here the share and the memory of a job.
"""

from __future__ import annotations

import numpy as np

from cotenant.cluster.placement.fleet import Fleet, Job
from cotenant.cluster.placement.interface import Candidates, Placement, Places, least, left_over
from cotenant.cluster.placement.interference import Interference


class KubeShare(Placement):
    name = "kubeshare"
    title = "KubeShare: affinity, anti-affinity and exclusion, then the fullest GPU"

    def choose(
        self, job: Job, candidates: Candidates, fleet: Fleet, interference: Interference
    ) -> Places | None:
        cost = self._order(job, candidates, fleet)
        wanted = np.isfinite(cost)
        if wanted.sum() < job.gpus:
            return None
        return least(candidates[wanted], cost[wanted], job.gpus)

    def _order(
        self, job: Job, candidates: Candidates, fleet: Fleet
    ) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        left = left_over(job, candidates, fleet)  # at most 2
        empty = fleet.tenants[candidates] == 0
        if job.affinity:
            if fleet.with_affinity(job.affinity).any():
                return left  # the candidates are those GPUs
            return np.where(empty, left, np.inf)
        has_words = fleet.with_affinity("")[candidates]
        return np.where(empty, 20 + left, np.where(has_words, 10 - left, left))
