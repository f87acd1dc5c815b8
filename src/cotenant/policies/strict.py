"""strict: a class runs only while every class above it is idle.

    rule strict: may_run = no tenant of a class above has work, and it is its turn among its equals by weight

The controller adds nothing: the rule needs no knob but its defaults. No promise is looked at; whoever is below takes
every gap and nothing else.
"""

from __future__ import annotations

from cotenant.policies.interface import Policy, TenantId


class Strict(Policy):
    name = "strict"
    title = "a class runs only while every class above it is idle"

    def explain(self, tenant: TenantId) -> list[str]:
        return ["It runs while no class above it has work; equals below production take turns by weight."]
