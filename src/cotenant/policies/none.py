"""none: no tenant is held back.

    rule none: may_run = true

The driver shares the GPU as it does without Cotenant; tenants are still counted and shown. The baseline for the other
policies.
"""

from __future__ import annotations

from cotenant.policies.interface import Policy, Rule, TenantId


class NoPolicy(Policy):
    name = "none"
    title = "nobody is held back; the driver shares the GPU"
    rule = Rule.none

    def explain(self, tenant: TenantId) -> list[str]:
        return ["Nobody is held back under this policy."]
