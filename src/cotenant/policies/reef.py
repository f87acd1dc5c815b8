"""reef: best-effort kernels are killed when production comes, and pad what it leaves (REEF, OSDI 2022).

    rule reef: production's request begins: kill all that runs below, it starts anew later
               below: at most 2 operations on the device
               beside a kernel of production: the first operation in the queue that ends no later on the free SMs

2 is REEF's device queue. Killing a kernel in the middle needs kernels that may run twice, which REEF gets from its own
compiler, and a patched AMD driver; so that half only runs in the simulator. Live (native/tenant/launch_rule.h) it is
the padding alone: nothing is killed, production waits for the end of at most 2 operations, and processes overlap only
in one MPS daemon (`run --share spatial`). Production's kernel is the one that it launched last; its SMs follow from its
grid and the driver's occupancy; times are those of their profiles (cotenant.profile), else learned. Nothing here
adapts: the controller only says how many may be ahead.
"""

from __future__ import annotations

from cotenant.classes import TenantClass
from cotenant.policies.interface import Knobs, Policy, Rule, TenantId, View

AHEAD = 2
FROM_PROFILE = "Its kernels take as long as their profile says, until they were timed."
LEARNED = "Its kernels have no profile: one that was never timed is too long to run beside production's."


class Reef(Policy):
    name = "reef"
    title = "REEF: kill lower-class kernels when production comes, pad the SMs it leaves"
    rule = Rule.reef
    sharing = "together"
    priorities = True
    kills = True

    def __init__(self) -> None:
        self._profiled: dict[TenantId, bool] = {}

    def tick(self, view: View) -> Knobs:
        self.kills = view.sms > 0  # which only the simulator knows
        self._profiled = {
            one.id: one.profiled_kernels > 0
            for one in view.tenants
            if not self.kills and one.tenant_class is not TenantClass.production
        }
        return Knobs(rule=self.rule, parameters=(AHEAD, float(not self.kills)))

    def explain(self, tenant: TenantId) -> list[str]:
        begins = (
            "is killed"
            if self.kills
            else f"runs to its end, {AHEAD} operations at most: nothing can be killed"
        )
        said = [
            f"When production's request begins, what is below {begins}; beside its kernels only runs what ends no "
            "later on the SMs that they leave."
        ]
        if tenant in self._profiled:
            said.append(FROM_PROFILE if self._profiled[tenant] else LEARNED)
        return said
