"""Pauses tenants by hand: their memory is evicted and their threads wait until they are resumed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from cotenant import segment
from cotenant.errors import Problem
from cotenant.segment import Where
from cotenant.tenants import jobs

ANSWER_SECONDS = 5.0
MOVING = (Where.evicting, Where.restoring)


class Ended(Problem):
    pass


class Refused(Problem):
    pass


def tenant_with(path: Path, pid: int) -> segment.Tenant:
    found = jobs.with_pid(pid, jobs.read(path))
    if found is None:
        raise Ended(f"tenant {pid} has ended")
    return found


def ask(path: Path, pid: int, pause: bool) -> segment.Tenant:
    """Returns as soon as the tenant has taken the request."""
    write(path, [pid], pause)
    return taken(path, pid)


def write(path: Path, pids: Sequence[int], pause: bool) -> list[segment.Tenant]:
    """Asks none of them where one cannot be asked. Returns how they were before."""
    before = [tenant_with(path, pid) for pid in pids]
    for tenant in before:
        if tenant.where == Where.pinned:
            raise Problem(
                f"{tenant.job} ({tenant.pid}) cannot be paused: it was not started so that its memory can move",
                "start it with `cotenant run --class opportunistic` or `--oversubscribe`; a change of class does not do"
                " it",
            )
    jobs.ask(path, {pid: {"pause": int(pause)} for pid in pids})
    return before


def taken(path: Path, pid: int) -> segment.Tenant:
    deadline = time.monotonic() + ANSWER_SECONDS
    while "pause" in (tenant := tenant_with(path, pid)).asked:
        # While it moves, it takes no requests.
        if time.monotonic() > deadline and tenant.where not in MOVING:
            raise Problem(f"tenant {pid} does not answer", "if it is stopped, it changes when it runs on")
        time.sleep(0.005)
    return tenant


def pause(path: Path, pid: int) -> segment.Tenant:
    return pause_all(path, [pid])[0]


def pause_all(path: Path, pids: Sequence[int]) -> list[segment.Tenant]:
    """Returns when the tenants' memory is on the host, or as much of it as would go; the reason is then a tenant's
    refusal. Where one refuses altogether, all run on that ran before, and the reason is a Problem. One that ends
    meanwhile is left out, unless it is the last.
    """
    asked_ns = segment.now_ns()
    before = write(path, pids, pause=True)
    try:
        return of_those_left(pids, lambda pid: gone(path, pid, asked_ns))
    except Refused:
        alive = {one.pid for one in jobs.read(path)}
        jobs.ask(path, {one.pid: {"pause": 0} for one in before if not one.paused and one.pid in alive})
        raise


def gone(path: Path, pid: int, asked_ns: int) -> segment.Tenant:
    tenant = taken(path, pid)
    was_paused, deadline = False, time.monotonic() + ANSWER_SECONDS
    while tenant.where != Where.evicted or could_still_go(tenant):
        refusal = tenant.refusal if tenant.refused_ns > asked_ns else None
        if refusal and tenant.where == Where.evicted:
            break
        if refusal and tenant.where == Where.resident:
            raise Refused(f"{tenant.job} ({pid}) was not paused: {refusal.text}", refusal.remedy)
        if tenant.paused or "pause" in tenant.asked or tenant.where in MOVING:
            was_paused, deadline = was_paused or tenant.paused, time.monotonic() + ANSWER_SECONDS
        elif was_paused or time.monotonic() > deadline:  # its mover shows a bit later than it takes a request
            raise Problem(f"{tenant.job} ({pid}) was resumed meanwhile", "pause it again")
        time.sleep(0.005)
        tenant = tenant_with(path, pid)
    return tenant


def of_those_left(pids: Sequence[int], wait: Callable[[int], segment.Tenant]) -> list[segment.Tenant]:
    left = []
    for pid in pids:
        try:
            left.append(wait(pid))
        except Ended:
            if pid == pids[-1] and not left:
                raise
    return left


def could_still_go(tenant: segment.Tenant) -> int:
    """Bytes on the GPU of one that has left in part."""
    return sum(use.movable_bytes for use in tenant.uses)


def resume(path: Path, pid: int, wait_seconds: float) -> segment.Tenant:
    return resume_all(path, [pid], wait_seconds)[0]


def resume_all(path: Path, pids: Sequence[int], wait_seconds: float) -> list[segment.Tenant]:
    """Each one's memory is restored when there is space for all of it. Returns then, or when the time is up."""
    deadline = time.monotonic() + wait_seconds

    def back(pid: int) -> segment.Tenant:
        tenant = taken(path, pid)
        while tenant.where != Where.resident and time.monotonic() < deadline:
            time.sleep(0.005)
            tenant = tenant_with(path, pid)
        return tenant

    write(path, pids, pause=False)
    return of_those_left(pids, back)
