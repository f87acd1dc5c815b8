"""mps: the kernels of all processes side by side, as NVIDIA's Multi-Process Service runs them.

    all contexts at once: SMs in proportion to what the running kernels ask for, bandwidth likewise
    rule none: may_run = true

No client priority and no thread percentage: MPS as it comes. The baseline that Orion, TGS, Salus and MuxFlow compare
themselves with. Whether processes run under MPS is decided before they start, so this only runs in the simulator; a
real MPS is used by starting its daemon and the policy `none`.
"""

from __future__ import annotations

from typing import ClassVar

from cotenant.policies.interface import Knobs, Rule, TenantId, View


class Mps:
    name: ClassVar[str] = "mps"
    title: ClassVar[str] = "all at once, as NVIDIA's MPS does it"
    every_ms: ClassVar[float] = 100
    rule: ClassVar[Rule] = Rule.none
    sharing: ClassVar[str] = "together"
    runs_live: ClassVar[bool] = False

    def tick(self, view: View) -> Knobs:
        return Knobs(rule=self.rule)

    def explain(self, tenant: TenantId) -> list[str]:
        return ["Nobody is held back; kernels of all processes share the SMs."]
