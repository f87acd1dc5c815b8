"""salus-fifo: one job after the other, each to its end, in order of arrival.

    rank = arrival of the job; the next is admitted when nobody is

Salus's baseline: what a GPU without sharing does. The lanes of salus.py then never hold two jobs.
"""

from __future__ import annotations

from collections.abc import Sequence

from cotenant.policies.interface import Tenant
from cotenant.policies.salus import Lanes, Need, Salus


class SalusFifo(Salus):
    name = "salus-fifo"
    title = "Salus FIFO: one job after the other, each to its end"

    def rank(self, tenant: Tenant) -> float:
        return tenant.arrived_us

    def may_be_admitted(self, waiting: Sequence[Tenant], lanes: Lanes) -> Sequence[Tenant]:
        if lanes.lanes:
            return ()
        # A job that never fits must not keep the others waiting for ever.
        fitting = (
            place
            for place, tenant in enumerate(waiting)
            if lanes.can_ever_hold(Need(tenant.persistent_bytes, tenant.ephemeral_bytes))
        )
        return waiting[: next(fitting, len(waiting)) + 1]
