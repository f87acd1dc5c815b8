"""paella: the shortest rest first, unless a tenant was neglected for too long (Paella, SOSP 2023).

    rule paella: the waiting operation of the request with least left goes, when it fits the free SMs;
                 of the request with least left of all, up to 2 go that do not fit
    deficit  += its weight's part of the time - what it got, while it has work; never under 0; without work: 0
    deficit > threshold: that tenant, the largest deficit first, goes before the shortest

Paella instruments kernels so that it knows the blocks' starts and ends, and has one dispatcher for all clients; the
simulator knows as much by itself. The paper leaves the threshold to the operator: 50 ms here. Deficits are counted in
GPU time at each tick, where Paella counts dispatches.
"""

from __future__ import annotations

from collections.abc import Sequence

from cotenant.policies.interface import Knobs, Policy, Rule, Tenant, TenantId, TenantKnobs, View
from cotenant.policies.journal import Journal
from cotenant.policies.window import Window

AHEAD = 2
THRESHOLD_MS = 50.0


class Paella(Policy):
    name = "paella"
    title = "Paella: least remaining time first, unless a deficit is too large"
    every_ms = 10
    rule = Rule.paella
    sharing = "together"
    runs_live = False

    def __init__(self, threshold_ms: float = THRESHOLD_MS) -> None:
        self.threshold_us = threshold_ms * 1000
        self.deficits_us: dict[TenantId, float] = {}
        self._window = Window()
        self._journal = Journal()

    def tick(self, view: View) -> Knobs:
        self._journal.keep_only(tenant.id for tenant in view.tenants)
        lasted_us = self._window.look(view)
        self._count(view.tenants, lasted_us)
        self._window.restart(view)
        neglected = {
            tenant: deficit for tenant, deficit in self.deficits_us.items() if deficit > self.threshold_us
        }
        for tenant, deficit in neglected.items():
            self._journal.note(tenant, f"It was {deficit / 1000:.0f} ms short of its share: it goes first.")
        return Knobs(
            rule=self.rule,
            tenants={tenant: TenantKnobs(rank=-deficit) for tenant, deficit in neglected.items()},
            parameters=(AHEAD, 1.0 if neglected else 0.0),
        )

    def explain(self, tenant: TenantId) -> list[str]:
        return self._journal.of(
            tenant, "The request with least left to run goes first; it was not neglected."
        )

    def _count(self, tenants: Sequence[Tenant], lasted_us: float) -> None:
        wanting = [tenant for tenant in tenants if tenant.has_work]
        weights = sum(tenant.weight for tenant in wanting)
        self.deficits_us = {
            tenant.id: max(
                0.0,
                self.deficits_us.get(tenant.id, 0.0)
                + lasted_us * tenant.weight / weights
                - self._window.growth([tenant]).used_us,
            )
            for tenant in wanting
        }
