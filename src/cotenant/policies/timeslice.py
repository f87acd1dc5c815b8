"""timeslice: what the stock driver does with processes that share a GPU.

    one context at a time, in turns of 2048 us; a context with nothing to run gives up its turn
    rule none: may_run = true

2048 us is what libcuda asks the kernel module for when it makes its channels (seen in its ioctl; nvidia-smi calls it
the default). The baseline of every paper here. On a GPU it is what happens without Cotenant, so this only runs in the
simulator; `none` comes nearest to it live.
"""

from __future__ import annotations

from cotenant.policies.interface import Knobs, Policy, Rule, TenantId, TenantKnobs, View

SLICE_US = 2048


class TimeSlice(Policy):
    name = "timeslice"
    title = "the driver's own turns of 2 ms, whatever the class"
    rule = Rule.none
    runs_live = False

    def tick(self, view: View) -> Knobs:
        return Knobs(
            rule=self.rule,
            tenants={tenant.id: TenantKnobs(time_slice_us=SLICE_US) for tenant in view.tenants},
        )

    def explain(self, tenant: TenantId) -> list[str]:
        return [f"Nobody is held back; the GPU changes between processes every {SLICE_US / 1000:.0f} ms."]
