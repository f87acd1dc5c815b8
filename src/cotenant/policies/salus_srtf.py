"""salus-srtf: the job that is done soonest goes first, and interrupts longer ones at their next iteration.

    rank = GPU time until the job is done; a job without an end comes last

Lanes, admission and the rule are those of salus.py. The remaining time is what the workload says, as in Salus.
"""

from __future__ import annotations

import math

from cotenant.policies.interface import Tenant
from cotenant.policies.salus import Salus


class SalusSrtf(Salus):
    name = "salus-srtf"
    title = "Salus SRTF: the job with the shortest remaining time first, iteration by iteration"

    def rank(self, tenant: Tenant) -> float:
        return tenant.remaining_us or math.inf
