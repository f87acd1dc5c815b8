"""guard-spatial: guard where all tenants go through one MPS daemon, as under `cotenant run --share spatial`.

What guard does there it does live too, by itself; this policy is for the simulator, where a policy says how contexts
share the GPU. Kernels of all tenants run at once, production's are more urgent, and nothing is cut.

    TOLERANT, perhaps with fewer SMs, where a trial has shown a slowdown of at most 5 %, else STRICT (reserve.py);
    with a promise, between them (policy.py)
"""

from __future__ import annotations

from cotenant.policies.guard.policy import Guard


class GuardSpatial(Guard):
    name = "guard-spatial"
    title = "guard among tenants of one MPS daemon (run --share spatial)"
    sharing = "together"
    priorities = True
    runs_live = False
