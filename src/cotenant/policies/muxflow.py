"""muxflow: offline work gets the SMs that online work leaves, while the GPU is healthy (MuxFlow, 2023).

    online's need = its SM activity in a second, the most of the last 10
    offline SM share = 1 - need - 5 %, at least 10 %, divided among the offline jobs that have work
    strain = the larger of online's utilisation (time with work) and of its SM activity
    healthy    strain >= 85 %: unhealthy
    unhealthy  nobody new is let in, shares only shrink
               strain >= 95 %, or unhealthy for 10 s: evicted;  strain < 85 % for 5 s: healthy
    evicted    all offline work is shut for 10 s, twice as long each time it happens again (at most 640 s);
               then unhealthy, with nobody let in;  60 s in health: back to 10 s

MuxFlow protects online work on GPUs under MPS by such a state machine (from GPU utilisation, SM activity, clock and
memory) and by an SM share that follows online's; the paper keeps its thresholds to itself, so the numbers are ours.
Clock and memory are not seen here. Its placement by predicted speed is a cluster's matter. Evicted jobs are killed
there and started elsewhere; here they are held. Live, SMs are not seen: time with work stands for SM activity, and the
share is one of GPU time (`rate`, not `sm_share`).
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Sequence

from cotenant.classes import TenantClass
from cotenant.policies.interface import SMALLEST_RATE, Knobs, Policy, Tenant, TenantId, TenantKnobs, View
from cotenant.policies.journal import Journal
from cotenant.policies.window import Window

SECOND_US = 1_000_000.0
NEED_OF_SECONDS = 10
MARGIN = 0.05
LEAST_SHARE = 0.10
STRAINED = 0.85
OVER_LIMIT = 0.95
PATIENCE_US = 10 * SECOND_US
RECOVERY_US = 5 * SECOND_US
FIRST_BACK_OFF_US = 10 * SECOND_US
LONGEST_BACK_OFF_US = 640 * SECOND_US
FORGIVEN_US = 60 * SECOND_US


class Health(enum.Enum):
    healthy = "healthy"
    unhealthy = "unhealthy"
    evicted = "evicted"


class HealthStates:
    """The state machine of one GPU. Pure: told the strain and the time."""

    def __init__(self) -> None:
        self.state = Health.healthy
        self.back_off_us = FIRST_BACK_OFF_US  # of the next eviction
        self.until_us = 0.0  # evicted: when it ends
        self._since_us = 0.0
        self._calm_since_us: float | None = None

    def see(self, now_us: float, strain: float) -> None:
        if strain >= STRAINED:
            self._calm_since_us = None
        elif self._calm_since_us is None:
            self._calm_since_us = now_us
        calm_us = 0.0 if self._calm_since_us is None else now_us - self._calm_since_us
        if self.state is Health.healthy:
            if strain >= STRAINED:
                self._go(Health.unhealthy, now_us)
            elif now_us - self._since_us >= FORGIVEN_US:
                self.back_off_us = FIRST_BACK_OFF_US
        elif self.state is Health.unhealthy:
            if strain >= OVER_LIMIT or (strain >= STRAINED and now_us - self._since_us >= PATIENCE_US):
                self._evict(now_us)
            elif calm_us >= RECOVERY_US:
                self._go(Health.healthy, now_us)
        elif now_us >= self.until_us:
            self._go(Health.unhealthy, now_us)

    def _evict(self, now_us: float) -> None:
        self.until_us = now_us + self.back_off_us
        self.back_off_us = min(2 * self.back_off_us, LONGEST_BACK_OFF_US)
        self._go(Health.evicted, now_us)

    def _go(self, state: Health, now_us: float) -> None:
        self.state, self._since_us = state, now_us


class MuxFlow(Policy):
    name = "muxflow"
    title = "MuxFlow: offline work on the SMs that online work leaves, while the GPU is healthy"
    sharing = "together"

    def __init__(self) -> None:
        self.health = HealthStates()
        self.share = LEAST_SHARE
        self._needs: deque[float] = deque(maxlen=NEED_OF_SECONDS)
        self._let_in: frozenset[TenantId] = frozenset()
        self._window = Window()
        self._journal = Journal()

    def tick(self, view: View) -> Knobs:
        online = view.of_class(TenantClass.production)
        offline = [tenant for tenant in view.tenants if tenant.tenant_class is not TenantClass.production]
        self._journal.keep_only(tenant.id for tenant in view.tenants)
        lasted_us = self._window.look(view)
        if lasted_us >= SECOND_US:
            self._see(view, online, lasted_us)
            self._window.restart(view)
        here = frozenset(tenant.id for tenant in offline)
        if self.health.state is Health.healthy:
            self._let_in = here
        elif self.health.state is Health.evicted:
            self._let_in = frozenset()
        if not online:
            return Knobs(rule=self.rule)
        knobs = {tenant.id: TenantKnobs(tolerant=True) for tenant in online}
        wanting = max(1, sum(tenant.has_work and tenant.id in self._let_in for tenant in offline))
        for tenant in offline:
            knobs[tenant.id] = self._knobs(tenant, self.share / wanting, sees_sms=view.sms > 0)
        return Knobs(rule=self.rule, tenants=knobs)

    def explain(self, tenant: TenantId) -> list[str]:
        return self._journal.of(tenant, "It is online work: it is not held.")

    def _see(self, view: View, online: Sequence[Tenant], lasted_us: float) -> None:
        grown = self._window.growth(online)
        utilisation = min(1.0, grown.busy_us / lasted_us)
        activity = grown.sm_us / lasted_us / view.sms if view.sms else utilisation
        self.health.see(view.now_us, max(utilisation, activity))
        self._needs.append(activity)
        share = max(LEAST_SHARE, 1 - max(self._needs) - MARGIN)
        self.share = share if self.health.state is Health.healthy else min(self.share, share)

    def _knobs(self, tenant: Tenant, share: float, sees_sms: bool) -> TenantKnobs:
        if self.health.state is Health.evicted:
            self._journal.note(
                tenant.id, "It is held: online work fills the GPU, and offline work was evicted."
            )
            return TenantKnobs(shut=True)
        if tenant.id not in self._let_in:
            self._journal.note(tenant.id, "It is held: the GPU is unhealthy, and nobody new is let in.")
            return TenantKnobs(shut=True)
        what = "SMs" if sees_sms else "GPU's time"
        self._journal.note(tenant.id, f"It may use {share:.0%} of the {what}, which online work leaves.")
        return TenantKnobs(sm_share=share) if sees_sms else TenantKnobs(rate=max(share, SMALLEST_RATE))
