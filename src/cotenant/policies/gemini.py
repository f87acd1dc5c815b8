"""gemini: one tenant at a time holds a token, for about as long as its bursts last (Gemini, TCC 2021).

    usage     = GPU time used in the last 10 s
    eligible  = has work, and usage < limit * 10 s
    next      = the eligible one furthest under its request: least usage / 10 s - request
    quota     = 0.5 burst + 0.5 last quota, at least 20 ms, at most what its limit leaves of the 10 s
    burst     = GPU time per burst over its last 3 s; a training iteration that ends is the end of a burst too
    the token ends when its quota is over, in time by the clock, or when its holder has no more work

Constants from Gemini's source (its other build clamps at 100 ms). As there, a quota runs by the clock, whether its
holder computes or not. Usage does not: Gemini counts a token's whole time as used, here only that in which its holder
had work. The limit is of the whole 10 s also before 10 s are over; Gemini's is of what has passed. The request of a
tenant is what it states, or the floor it was promised; where nobody states anything, its weight's part of all weights.
The limit is what it states, 1 otherwise. Gemini asks for a token at every burst over a socket; here tokens change at
ticks of 10 ms, and while nobody has work nobody is held, so that the first to come does not wait for a tick. For Gemini
a burst ends where the program synchronises, and gaps under 2 ms are merged. Here it ends where Cotenant's grace says
so, or, where they are seen (not live), with a request or an iteration.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from cotenant.policies.interface import Knobs, Policy, Rule, Tenant, TenantId, TenantKnobs, View
from cotenant.policies.journal import Journal

WINDOW_US = 10_000_000.0
BURSTS_OF_US = 3_000_000.0
LEAST_QUOTA_US = 20_000.0
SMOOTHING = 0.5


@dataclass
class Account:
    """What Gemini remembers of a client."""

    last_quota_us: float
    seen_used_us: float
    uses: deque[tuple[float, float]] = field(default_factory=deque)  # when, how much; of the last 10 s
    looks: deque[tuple[float, float, int]] = field(
        default_factory=deque
    )  # when, used_us, bursts; of the last 3 s
    usage_us: float = 0.0

    def look(self, now_us: float, tenant: Tenant) -> None:
        used_us = tenant.used_us - self.seen_used_us
        self.seen_used_us = tenant.used_us
        if used_us > 0:
            self.uses.append((now_us, used_us))
            self.usage_us += used_us
        while self.uses and self.uses[0][0] <= now_us - WINDOW_US:
            self.usage_us -= self.uses.popleft()[1]
        self.looks.append((now_us, tenant.used_us, max(tenant.bursts, tenant.requests)))
        while self.looks[0][0] < now_us - BURSTS_OF_US:
            self.looks.popleft()

    def burst_us(self) -> float:
        (_, used_then, bursts_then), (_, used_now, bursts_now) = self.looks[0], self.looks[-1]
        return (used_now - used_then) / max(1, bursts_now - bursts_then)


class Gemini(Policy):
    name = "gemini"
    title = "Gemini: one token, quotas from predicted bursts, request and limit"
    every_ms = 10
    rule = Rule.fair

    def __init__(self, least_quota_ms: float = LEAST_QUOTA_US / 1000) -> None:
        self.least_quota_us = least_quota_ms * 1000
        self.holder: TenantId | None = None
        self._quota_us = 0.0
        self._granted_us = 0.0
        self._began_us: float | None = None
        self._accounts: dict[TenantId, Account] = {}
        self._journal = Journal()

    def tick(self, view: View) -> Knobs:
        if self._began_us is None:
            self._began_us = view.now_us
        self._journal.keep_only(tenant.id for tenant in view.tenants)
        self._accounts = {
            tenant.id: self._accounts.get(tenant.id) or Account(self.least_quota_us, tenant.used_us)
            for tenant in view.tenants
        }
        for tenant in view.tenants:
            self._accounts[tenant.id].look(view.now_us, tenant)
        holder = next((tenant for tenant in view.tenants if tenant.id == self.holder), None)
        if holder is None or not holder.has_work or view.now_us - self._granted_us >= self._quota_us:
            self._grant(view)
        if not any(tenant.has_work for tenant in view.tenants):
            return Knobs(rule=self.rule)
        return Knobs(
            rule=self.rule,
            tenants={tenant.id: TenantKnobs(shut=tenant.id != self.holder) for tenant in view.tenants},
        )

    def explain(self, tenant: TenantId) -> list[str]:
        return self._journal.of(tenant)

    def request(self, tenant: Tenant, tenants: Sequence[Tenant]) -> float:
        if any(max(one.share_request, one.floor) > 0 for one in tenants):
            return max(tenant.share_request, tenant.floor)
        return tenant.weight / sum(one.weight for one in tenants)

    def _left_us(self, tenant: Tenant) -> float:
        """What its limit leaves it of the window."""
        return tenant.share_limit * WINDOW_US - self._accounts[tenant.id].usage_us

    def _grant(self, view: View) -> None:
        assert self._began_us is not None
        window_us = min(WINDOW_US, max(view.now_us - self._began_us, self.every_ms * 1000))
        eligible = [tenant for tenant in view.tenants if tenant.has_work and self._left_us(tenant) > 0]
        if not eligible:
            self.holder = None
            return

        def over_request(tenant: Tenant) -> float:
            return self._accounts[tenant.id].usage_us / window_us - self.request(tenant, view.tenants)

        chosen = min(eligible, key=lambda tenant: (over_request(tenant), tenant.id))
        account = self._accounts[chosen.id]
        quota_us = SMOOTHING * account.burst_us() + (1 - SMOOTHING) * account.last_quota_us
        quota_us = min(max(quota_us, self.least_quota_us), self._left_us(chosen))
        account.last_quota_us = quota_us
        self.holder, self._quota_us, self._granted_us = chosen.id, quota_us, view.now_us
        self._journal.note(
            chosen.id,
            f"It was given the token for {quota_us / 1000:.0f} ms: it had used {account.usage_us / window_us:.0%} "
            f"of the last {window_us / 1e6:.0f} s and requested {self.request(chosen, view.tenants):.0%}.",
        )
