"""mps: the kernels of all processes side by side, as NVIDIA's Multi-Process Service runs them.

    all contexts at once: SMs in proportion to what the running kernels ask for, bandwidth likewise
    rule none: may_run = true

No client priority and no thread percentage: MPS as it comes. The baseline that Orion, TGS, Salus and MuxFlow compare
themselves with. Whether processes run under MPS is decided before they start, so this only runs in the simulator; a
real MPS is used by starting its daemon and the policy `none`.
"""

from __future__ import annotations

from cotenant.policies.interface import Policy, Rule, TenantId


class Mps(Policy):
    name = "mps"
    title = "all at once, as NVIDIA's MPS does it"
    rule = Rule.none
    sharing = "together"
    runs_live = False

    def explain(self, tenant: TenantId) -> list[str]:
        return ["Nobody is held back; kernels of all processes share the SMs."]
