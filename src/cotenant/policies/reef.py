"""reef: best-effort kernels are killed when production comes, and pad what it leaves (REEF, OSDI 2022).

    rule reef: production's request begins: kill all that runs below, it starts anew later
               below: at most 2 operations on the device
               beside a kernel of production: the first operation in the queue that ends no later on the free SMs

2 is REEF's device queue. Killing a kernel in the middle needs kernels that may run twice, which REEF gets from its own
compiler, and a patched AMD driver; so this only runs in the simulator. On an NVIDIA GPU `guard` and `strict` do what
can be done: gates, and time slices that cut. Nothing here adapts: the controller only says how many may be ahead.
"""

from __future__ import annotations

from cotenant.policies.interface import Knobs, Policy, Rule, TenantId, View

AHEAD = 2


class Reef(Policy):
    name = "reef"
    title = "REEF: kill lower-class kernels when production comes, pad the SMs it leaves"
    rule = Rule.reef
    sharing = "together"
    priorities = True
    runs_live = False

    def tick(self, view: View) -> Knobs:
        return Knobs(rule=self.rule, parameters=(AHEAD,))

    def explain(self, tenant: TenantId) -> list[str]:
        return [
            "When production's request begins, what is below is killed; beside its kernels only runs what ends no "
            "later on the SMs that they leave."
        ]
