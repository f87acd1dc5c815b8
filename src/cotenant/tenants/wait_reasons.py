"""Why a tenant waits now: what the admission rule (native/admission/admission.h) sees, in words."""

from __future__ import annotations

from collections.abc import Iterator

from cotenant import classes, segment
from cotenant.policies.interface import Rule
from cotenant.tenants import jobs


def reasons(seen: segment.Snapshot, tenant: segment.Tenant, use: segment.Use, now_ns: int) -> Iterator[str]:
    """Nothing where it may go on. Each names its subject."""
    if not use.gated:
        return
    who = jobs.named(tenant)
    for other in those_above(seen, tenant, use, now_ns):
        name = classes.name_of(other.tenant_class)
        yield f"{name} {jobs.named(other)} is of a higher class than {who} and has work"
    if use.shut_until_ns > now_ns:
        left_ms = (use.shut_until_ns - now_ns) / 1e6
        yield f"the policy keeps {who} shut, for another {left_ms:.0f} ms unless it is renewed"
    if use.over_rate:
        yield f"{who} has used more than its rate, {use.rate / 10:g}% of the GPU"
    for other in those_with_the_turn(seen, tenant, use, now_ns):
        yield f"the turn belongs to {jobs.named(other)}, an equal of {who}"


def delayers(
    seen: segment.Snapshot, tenant: segment.Tenant, use: segment.Use, now_ns: int
) -> list[segment.Tenant]:
    """For whom it waits now, with work of its own."""
    if not use.gated or not use.busy:
        return []
    return [
        *those_above(seen, tenant, use, now_ns),
        *those_with_the_turn(seen, tenant, use, now_ns),
    ]


def those_above(
    seen: segment.Snapshot, tenant: segment.Tenant, use: segment.Use, now_ns: int
) -> Iterator[segment.Tenant]:
    """Of a higher class and with work, where such go first."""
    for other, there in others_with_work(seen, tenant, use.gpu, now_ns) if seen.rule == Rule.strict else ():
        if other.tenant_class < tenant.tenant_class and there.tolerant_until_ns <= now_ns:
            yield other


def those_with_the_turn(
    seen: segment.Snapshot, tenant: segment.Tenant, use: segment.Use, now_ns: int
) -> Iterator[segment.Tenant]:
    for other, there in others_with_work(seen, tenant, use.gpu, now_ns):
        is_equal = seen.rule == Rule.fair or other.tenant_class == tenant.tenant_class
        if is_equal and there.holds_turn:
            yield other


def others_with_work(
    seen: segment.Snapshot, tenant: segment.Tenant, gpu: int, now_ns: int
) -> Iterator[tuple[segment.Tenant, segment.Use]]:
    for other in seen.tenants:
        # A stopped tenant keeps nobody waiting.
        if other is tenant or abs(now_ns - other.heartbeat_ns) >= seen.stale_ms * 1_000_000:
            continue
        for there in other.uses:
            if there.gpu == gpu and there.busy:
                yield other, there
