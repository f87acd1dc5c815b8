"""chimera: what is in production's way is drained, cut or left running, whichever is cheapest (Chimera, ASPLOS 2015).

    rule chimera: production's kernel finds the GPU taken; for each kernel below that runs
                  delay: drain   = its rest
                         let run = min(its rest, the rest of production's request)
                                   * the part of its SMs or bandwidth that production does not get
                         cut     = a context switch
                  of the ways with delay <= 15 us the one that loses least work, else the one of the shortest delay

15 us is the paper's constraint on the preemption latency. The paper decides for each thread block of each SM, in a
simulated GPU; here the unit is a kernel, and the price of a cut is that of the simulated GPU's context switch. The
paper's flushing needs idempotent kernels, of which we know none. Nothing here adapts.
"""

from __future__ import annotations

from cotenant.policies.interface import Knobs, Policy, Rule, TenantId, View

LATENCY_US = 15.0


class Chimera(Policy):
    name = "chimera"
    title = "Chimera: drain, cut or let run, whichever is cheapest for production"
    rule = Rule.chimera
    sharing = "together"
    priorities = True
    runs_live = False

    def __init__(self, latency_us: float = LATENCY_US) -> None:
        self.latency_us = latency_us

    def tick(self, view: View) -> Knobs:
        return Knobs(rule=self.rule, parameters=(self.latency_us,))

    def explain(self, tenant: TenantId) -> list[str]:
        return [
            f"A kernel in production's way is drained, cut or left running, whichever is cheapest within "
            f"{self.latency_us:.0f} us."
        ]
