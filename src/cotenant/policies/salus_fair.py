"""salus-fair: in a lane, who has had the least GPU time for its weight begins the next iteration.

    rank = used GPU time / weight

Lanes, admission and the rule are those of salus.py. A newcomer has used nothing, so it catches up with the others, as
Salus's fair policy has it for hyper-parameter search.
"""

from __future__ import annotations

from cotenant.policies.interface import Tenant
from cotenant.policies.salus import Salus


class SalusFair(Salus):
    name = "salus-fair"
    title = "Salus FAIR: iterations of the job with the least GPU time"

    def rank(self, tenant: Tenant) -> float:
        return tenant.used_us / tenant.weight
