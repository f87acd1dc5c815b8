"""orion: operation by operation, beside production only what wants another resource (Orion, EuroSys 2024).

    rule orion: a best-effort operation goes if production is idle, or if it is small (SMs <= SM_TH) and of another
                class (compute- or memory-bound) than production's; outstanding best-effort time > DUR_TH: hold
    DUR_TH = 2.5 % of production's request alone
    SM_TH  = all SMs where production infers
             where it trains: binary search in [0, all SMs], a step every 10 iterations:
             mean iteration within its limit: search above, else below

Constants from Orion's source. It searches in [0, the best-effort job's largest kernel]; how large that is a controller
is not shown, so the search begins at half of the GPU and needs a step or two more. It adds up the SMs of what it queued
in the same round of its loop; here those that best-effort kernels hold at the moment are added up. As in Orion, what is
outstanding are kernels, not copies. Its class of a kernel is compute or memory where one of both throughputs is over
60 %, and unknown where neither is. Here only bandwidth is known: over 60 % is memory, all else compute, and a recorded
trace, which says nothing of bandwidth, is compute throughout. Two things of its loop are left out: the first ten
iterations of a best-effort job, which it lets pass, and the update phase of a training iteration.

It is told the latency limit of a training job; here that is the promise that the tenant
states, or 10 % over alone. The length of a request alone is what the workload says, as Orion's own profiles do; until
it is known DUR_TH is 0, which lets in one operation at a time. Of several production tenants the most demanding counts.
The search begins anew when tenants come or go. Where a program asks CUDA how many blocks of a kernel fit, Orion counts
SMs from that; the simulator knows them. Streams in one process: contexts run together, production's are more urgent.

Live (native/tenant/launch_rule.h), its clients are processes instead of threads of one process, so each launch asks for
itself, and they overlap only in one MPS daemon (`run --share spatial`). A kernel's SMs follow from its grid and the
driver's occupancy. Its class is that of its profile (cotenant.profile); without one it is unknown, which differs from
every other. A request alone is not known: the mean burst
so far, beside others or not, stands for it. Whether a job trains is not known either: SM_TH is all SMs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from cotenant.classes import TenantClass
from cotenant.policies.interface import Knobs, Policy, Rule, Tenant, TenantId, View
from cotenant.policies.journal import Journal

OUTSTANDING = 0.025
ITERATIONS = 10
TOLERATED = 0.10


def classes_in_words(tenant: Tenant, production: Sequence[Tenant]) -> str:
    """Live: whether profiles tell which resource its kernels and production's want."""
    if not tenant.profiled_kernels:
        return "no profile tells which one its kernels want: any does"
    if not any(one.profiled_kernels for one in production):
        return "no profile tells which one production's kernels want: any does"
    if any(one.unprofiled_kernels for one in (tenant, *production)):
        return "by their profiles; a kernel without one may run beside any"
    return "by their profiles"


def request_us(tenant: Tenant) -> float:
    """How long a request of it runs alone; live, how long its bursts took."""
    return tenant.alone_us or (tenant.busy_us / tenant.bursts if tenant.bursts else 0.0)


def sms_in_words(threshold: float) -> str:
    return "all SMs" if math.isinf(threshold) else f"{threshold:.0f} SMs"


class Search:
    """The largest SM threshold that keeps a training job within its limit, by halving."""

    def __init__(self, sms: float) -> None:
        self.low, self.high = 0.0, sms

    @property
    def threshold(self) -> float:
        return (self.low + self.high) / 2 if not self.is_over else self.low

    @property
    def is_over(self) -> bool:
        return self.high - self.low <= 1

    def saw(self, within_limit: bool) -> None:
        if self.is_over:
            return
        if within_limit:
            self.low = self.threshold
        else:
            self.high = self.threshold


class Orion(Policy):
    name = "orion"
    title = "Orion: beside production only small operations that want another resource"
    every_ms = 10
    rule = Rule.orion
    sharing = "together"
    priorities = True

    def __init__(self) -> None:
        self._searches: dict[TenantId, Search] = {}
        self._measured: dict[
            TenantId, tuple[int, float]
        ] = {}  # requests and their latencies at the last step
        self._here: frozenset[TenantId] = frozenset()
        self._journal = Journal()

    def tick(self, view: View) -> Knobs:
        here = frozenset(tenant.id for tenant in view.tenants)
        if here != self._here:
            self._here, self._searches, self._measured = here, {}, {}
            self._journal.keep_only(here)
        production = view.of_class(TenantClass.production)
        all_sms = view.sms or math.inf  # live each process knows how many that is
        sm_threshold = min((self._sm_threshold(tenant, all_sms) for tenant in production), default=all_sms)
        outstanding_us = min((OUTSTANDING * request_us(tenant) for tenant in production), default=math.inf)
        outstanding = (
            f"{outstanding_us:.0f} us" if view.sms else f"{OUTSTANDING:.1%} of production's mean burst"
        )
        for tenant in view.tenants:
            resource = (
                "another resource"
                if view.sms
                else f"another resource ({classes_in_words(tenant, production)})"
            )
            if tenant.tenant_class is not TenantClass.production:
                self._journal.note(
                    tenant.id,
                    f"Beside production its operations may hold {sms_in_words(sm_threshold)}, if they want {resource}, "
                    f"and {outstanding} may be outstanding.",
                )
        return Knobs(rule=self.rule, parameters=(sm_threshold, outstanding_us))

    def explain(self, tenant: TenantId) -> list[str]:
        return self._journal.of(tenant, "It is production: its operations go at once.")

    def _sm_threshold(self, tenant: Tenant, sms: float) -> float:
        if not tenant.trains:
            return sms
        search = self._searches.setdefault(tenant.id, Search(sms))
        requests, latencies_us = self._measured.setdefault(tenant.id, (tenant.requests, tenant.request_us))
        ended = tenant.requests - requests
        if ended >= ITERATIONS:
            self._measured[tenant.id] = (tenant.requests, tenant.request_us)
            self._step(tenant, search, (tenant.request_us - latencies_us) / ended)
        return search.threshold

    def _step(self, tenant: Tenant, search: Search, iteration_us: float) -> None:
        tolerated = TOLERATED if tenant.slowdown is None else tenant.slowdown
        limit_us = tenant.alone_us * (1 + tolerated)
        before = search.threshold
        search.saw(iteration_us <= limit_us)
        self._journal.note(
            tenant.id,
            f"{ITERATIONS} iterations took {iteration_us:.0f} us each, {limit_us:.0f} us is the limit: others beside "
            f"it may hold {search.threshold:.0f} SMs now ({before:.0f} before).",
        )
