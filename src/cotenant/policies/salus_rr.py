"""salus-rr: in a lane, jobs begin their iterations in turn.

    rank = the same for all: the rule then takes the iteration that has waited longest
    admission: in order of arrival

Lanes, admission and the rule are those of salus.py. Every job does one iteration a round, however long it takes: equal
numbers of iterations, where salus-fair gives equal time.
"""

from __future__ import annotations

from typing import ClassVar

from cotenant.policies.interface import Tenant
from cotenant.policies.salus import Salus


class SalusRr(Salus):
    name = "salus-rr"
    title = "Salus RR: iterations in turn, one of each job"
    in_turn: ClassVar[bool] = True

    def rank(self, tenant: Tenant) -> float:
        return tenant.arrived_us
