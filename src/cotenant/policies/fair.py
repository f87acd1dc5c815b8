"""fair: every tenant gets GPU time by weight, whatever its class.

    rule fair: of the tenants that have work, the one with the least GPU time for its weight goes;
               it keeps its turn until it has executed `turn_us` in it, or has run empty

GPU time is what the tenants measure themselves (`used_us`). A turn (some 10 ms, depending on the measured cost of a
switch) is long against the cost of a switch (a gate opens in 7 us, a switch of contexts takes some 150 us) and short
against what a person notices.
"""

from __future__ import annotations

from cotenant.policies.interface import Knobs, Policy, Rule, TenantId, View


class Fair(Policy):
    name = "fair"
    title = "all take turns by weight, in measured GPU time"
    rule = Rule.fair

    def __init__(self) -> None:
        self.shares: dict[TenantId, tuple[float, float]] = {}  # what it is due, what it has had so far

    def tick(self, view: View) -> Knobs:
        wanting = [tenant for tenant in view.tenants if tenant.has_work]
        weights = sum(tenant.weight for tenant in wanting)
        used = sum(tenant.used_us for tenant in view.tenants)
        self.shares = {
            tenant.id: (tenant.weight / weights, tenant.used_us / used if used else 0.0) for tenant in wanting
        }
        return Knobs(rule=self.rule)

    def explain(self, tenant: TenantId) -> list[str]:
        if tenant not in self.shares:
            return ["It has no work: its share goes to those that have."]
        due, had = self.shares[tenant]
        return [
            f"By weight {due:.0%} of the GPU is its share now; so far it has had {had:.0%} of what was used."
        ]
