"""Why a tenant waits now: what the admission rule (native/admission/admission.h) sees, in words."""

from __future__ import annotations

from collections.abc import Iterator

from cotenant import classes, segment
from cotenant.policies.interface import Rule
from cotenant.tenants import jobs


def reasons(seen: segment.Snapshot, tenant: segment.Tenant, use: segment.Use, now_ns: int) -> Iterator[str]:
    """Nothing where it may go on. Each names its subject."""
    if not use.held:
        return
    who = jobs.named(tenant)
    for other, there in those_above(seen, tenant, use, now_ns):
        name = f"{classes.name_of(other.tenant_class)} {jobs.named(other)}"
        if not use.only_copies:
            yield f"{name} is of a higher class than {who} and has work"
        if use.copies_gated and there.copying:
            yield f"{name} copies between host and GPU, and long copies of {who} wait for that"
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
    if not use.held or not use.busy:
        return []
    above = those_above(seen, tenant, use, now_ns)
    return [
        *(other for other, there in above if there.copying or not use.only_copies),
        *those_with_the_turn(seen, tenant, use, now_ns),
    ]


def those_above(
    seen: segment.Snapshot, tenant: segment.Tenant, use: segment.Use, now_ns: int
) -> Iterator[tuple[segment.Tenant, segment.Use]]:
    """Of a higher class and with work, where such go first."""
    for other, there in others_with_work(seen, tenant, use.gpu, now_ns) if seen.rule == Rule.strict else ():
        if other.tenant_class < tenant.tenant_class and there.tolerant_until_ns <= now_ns:
            yield other, there


def those_with_the_turn(
    seen: segment.Snapshot, tenant: segment.Tenant, use: segment.Use, now_ns: int
) -> Iterator[segment.Tenant]:
    """Copies take no turns."""
    for other, there in others_with_work(seen, tenant, use.gpu, now_ns) if not use.only_copies else ():
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
