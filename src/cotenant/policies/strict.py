"""strict: a class runs only while every class above it is idle.

    rule strict: may_run = no tenant of a class above has work, and it is its turn among its equals by weight

The controller adds nothing: the rule needs no knob but its defaults. No promise is looked at; whoever is below takes
every gap and nothing else.
"""

from __future__ import annotations

from typing import ClassVar

from cotenant.policies.interface import Knobs, Rule, TenantId, View


class Strict:
    name: ClassVar[str] = "strict"
    title: ClassVar[str] = "a class runs only while every class above it is idle"
    every_ms: ClassVar[float] = 100
    rule: ClassVar[Rule] = Rule.strict

    def tick(self, view: View) -> Knobs:
        return Knobs(rule=self.rule)

    def explain(self, tenant: TenantId) -> list[str]:
        return ["It runs while no class above it has work; equals below production take turns by weight."]
