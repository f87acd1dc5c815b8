"""strict: a class runs only while every higher class is idle.

    rule strict: may_run = no tenant of a higher class has work, and it is its turn among its equals by weight

The controller adds nothing: the rule needs only the default knobs. It does not look at promises; lower classes run in
every gap of the higher ones and at no other time.
"""

from __future__ import annotations

from cotenant.policies.interface import Policy, TenantId


class Strict(Policy):
    name = "strict"
    title = "a class runs only while every higher class is idle"

    def explain(self, tenant: TenantId) -> list[str]:
        return ["It runs while no class above it has work; equals below production take turns by weight."]
