"""antman: a best-effort job is stretched by idle time between its operations (AntMan, OSDI 2020).

    a step that takes t alone takes t * 100 / p: its rate is p % of its demand
    demand = used / (used + idle) over a window of 1 s: what it would use by itself; 1 while nothing is known
    cost = production's busy time per operation over a window of 1 s; alone = that while the others are shut
    cost <= 1.05 alone: p += 5       else: p /= 2       (0 <= p <= 100)

p is AntMan's performance control; from inside the framework it sleeps after each step, and spreads that sleep between
the operators. From outside the same is a rate: the tenant's gate closes for a little after each little use. AntMan's
coordinator lowers p when the resource-guaranteed job suffers and raises it when not; the paper states no numbers for
that, so the window, the 5 %, the step and the halving are ours. Where a production job states a promise, that counts
instead of its 5 %; of several the least. A pause of the job's own is no longer for being stretched, which is why its
demand can be told from a window in which it was. Memory is the other half of AntMan and is not steered here.
"""

from __future__ import annotations

from collections.abc import Sequence

from cotenant.classes import TenantClass
from cotenant.policies.interface import SMALLEST_RATE, Knobs, Policy, Tenant, TenantId, TenantKnobs, View
from cotenant.policies.journal import Journal
from cotenant.policies.window import Window

WINDOW_MS = 1000.0
TOLERATED = 0.05
STEP = 5.0


class AntMan(Policy):
    name = "antman"
    title = "AntMan: idle time spread between a job's operations, by performance control"

    def __init__(self, window_ms: float = WINDOW_MS) -> None:
        self.window_us = window_ms * 1000
        self.p = 0.0
        self.alone_us: float | None = None
        self._demand: dict[TenantId, float] = {}  # share of the time that it uses where nothing stretches it
        self._window = Window()
        self._production: frozenset[TenantId] = frozenset()
        self._journal = Journal()

    def tick(self, view: View) -> Knobs:
        production = view.of_class(TenantClass.production)
        others = [tenant for tenant in view.tenants if tenant.tenant_class is not TenantClass.production]
        here = frozenset(tenant.id for tenant in production)
        if here != self._production:
            self._production, self.alone_us, self.p = here, None, 0.0
            self._window.restart(view)
        self._journal.keep_only(tenant.id for tenant in view.tenants)
        self._demand = {one.id: self._demand[one.id] for one in others if one.id in self._demand}
        lasted_us = self._window.look(view)
        if lasted_us >= self.window_us:
            self._see(production, others, lasted_us)
            self._window.restart(view)
        return Knobs(rule=self.rule, tenants=self._knobs(production, others))

    def explain(self, tenant: TenantId) -> list[str]:
        return self._journal.of(tenant)

    def rate(self, tenant: TenantId) -> float:
        return self.p / 100 * self._demand.get(tenant, 1.0)

    def _see(self, production: Sequence[Tenant], others: Sequence[Tenant], lasted_us: float) -> None:
        for tenant in others:
            self._see_demand(tenant, lasted_us)
        grown = self._window.growth(production)
        if not grown.operations or not grown.busy_us:
            return
        cost_us = grown.busy_us / grown.operations
        if self.alone_us is None:
            self.alone_us = cost_us
            return
        tolerated = min(TOLERATED if one.slowdown is None else one.slowdown for one in production)
        slowdown, before = cost_us / self.alone_us - 1, self.p
        self.p = min(self.p + STEP, 100.0) if slowdown <= tolerated else self.p / 2
        for tenant in production:
            self._journal.note(
                tenant.id,
                f"Its operations took {slowdown:+.1%} against alone, {tolerated:.0%} is tolerated: "
                f"the others go at {self.p:.0f} % of their speed now ({before:.0f} % before).",
            )

    def _see_demand(self, tenant: Tenant, lasted_us: float) -> None:
        """One that had no work says nothing of what it will use when it has; nor does one that was not let do any."""
        grown = self._window.growth([tenant])
        if not grown.busy_us:
            return
        idle_us = max(0.0, lasted_us - grown.busy_us)
        self._demand[tenant.id] = grown.used_us / (grown.used_us + idle_us) if grown.used_us else 1.0

    def _knobs(self, production: Sequence[Tenant], others: Sequence[Tenant]) -> dict[TenantId, TenantKnobs]:
        if not production:
            return {}
        knobs = {tenant.id: TenantKnobs(tolerant=True) for tenant in production}
        for tenant in others:
            rate = self.rate(tenant.id)
            shut = rate < SMALLEST_RATE
            knobs[tenant.id] = TenantKnobs(shut=True) if shut else TenantKnobs(rate=rate)
            self._journal.note(tenant.id, f"It is stretched to {self.p:.0f} % of its own speed.")
        return knobs
