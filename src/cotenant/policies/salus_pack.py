"""salus-pack: as many jobs as memory safely holds; in a lane, who came first goes first.

    rank = arrival of the job

Lanes, admission and the rule are those of salus.py.
"""

from __future__ import annotations

from cotenant.policies.interface import Tenant
from cotenant.policies.salus import Salus


class SalusPack(Salus):
    name = "salus-pack"
    title = "Salus PACK: all jobs that memory safely holds, iterations in order of arrival"

    def rank(self, tenant: Tenant) -> float:
        return tenant.arrived_us
