"""Pauses a tenant by hand: its memory is evicted and its threads wait until it is resumed."""

from __future__ import annotations

import time
from pathlib import Path

from cotenant import segment
from cotenant.errors import Problem
from cotenant.segment import Where

ANSWER_SECONDS = 5.0
ELSEWHERE = "`cotenant doctor` says more; --segment names another file"


def tenant_with(path: Path, pid: int) -> segment.Tenant:
    tenants = tenants_of(path)
    try:
        found = segment.with_pid(pid, tenants)
    except segment.BadSegment as error:
        raise Problem(str(error), "one of them lies: `cotenant segment show` names their users") from None
    if found is None:
        known = ", ".join(f"{one.pid} ({one.program})" for one in tenants) or "no tenants"
        raise Problem(f"no tenant has the process number {pid}", f"there are {known}")
    return found


def tenants_of(path: Path) -> tuple[segment.Tenant, ...]:
    try:
        return segment.read(path).tenants
    except FileNotFoundError:
        return ()
    except segment.BadSegment as error:
        raise Problem(str(error), ELSEWHERE) from None


def ask(path: Path, pid: int, pause: bool) -> segment.Tenant:
    """Returns as soon as the tenant has taken the request."""
    tenant = tenant_with(path, pid)
    if tenant.where == Where.pinned:
        raise Problem(
            f"{pid} ({tenant.program}) cannot be paused: it was not started so that its memory can move",
            "start it with `cotenant run --class opportunistic` or `--oversubscribe`; a change of class does not do it",
        )
    try:
        segment.ask(path, pid, {"pause": int(pause)})
    except segment.BadSegment as error:
        raise Problem(str(error), ELSEWHERE) from None
    deadline = time.monotonic() + ANSWER_SECONDS
    while "pause" in (tenant := tenant_with(path, pid)).asked:
        # While it moves, it takes no requests.
        if time.monotonic() > deadline and tenant.where not in (Where.evicting, Where.restoring):
            raise Problem(f"tenant {pid} does not answer", "if it is stopped, it changes when it runs on")
        time.sleep(0.005)
    return tenant


def pause(path: Path, pid: int) -> segment.Tenant:
    """Returns when the tenant's memory is on the host, or as much of it as would go; the reason is then its refusal.
    Where it refuses altogether, it runs on, and the reason is a Problem.
    """
    asked_ns = segment.now_ns()
    tenant = ask(path, pid, pause=True)
    while tenant.where != Where.evicted or could_still_go(tenant):
        refusal = tenant.refusal if tenant.refused_ns > asked_ns else None
        if refusal and tenant.where == Where.evicted:
            break
        if refusal and tenant.where == Where.resident:
            ask(path, pid, pause=False)
            raise Problem(f"{pid} ({tenant.program}) was not paused: {refusal.text}", refusal.remedy)
        time.sleep(0.005)
        tenant = tenant_with(path, pid)
    return tenant


def could_still_go(tenant: segment.Tenant) -> int:
    """Bytes on the GPU of one that has left in part."""
    return sum(use.movable_bytes for use in tenant.uses)


def resume(path: Path, pid: int, wait_seconds: float) -> segment.Tenant:
    """Its memory is restored when there is space for all of it. Returns then, or when the time is up."""
    deadline = time.monotonic() + wait_seconds
    tenant = ask(path, pid, pause=False)
    while tenant.where != Where.resident and time.monotonic() < deadline:
        time.sleep(0.005)
        tenant = tenant_with(path, pid)
    return tenant
