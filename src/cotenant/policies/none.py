"""none: nobody is held back.

    rule none: may_run = true

The driver shares the GPU as it does without Cotenant; tenants are still counted and shown. What the others are
compared with.
"""

from __future__ import annotations

from typing import ClassVar

from cotenant.policies.interface import Knobs, Rule, TenantId, View


class NoPolicy:
    name: ClassVar[str] = "none"
    title: ClassVar[str] = "nobody is held back; the driver shares the GPU"
    every_ms: ClassVar[float] = 100
    rule: ClassVar[Rule] = Rule.none

    def tick(self, view: View) -> Knobs:
        return Knobs(rule=self.rule)

    def explain(self, tenant: TenantId) -> list[str]:
        return ["Nobody is held back under this policy."]
