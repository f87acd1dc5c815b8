"""A picture of cotenant.top's model as the page gets it: GPUs, and jobs with their processes.

A figure has the name and the unit that figures.py gives it. A job has the sums of its processes, and the most telling
of their states; what cannot be summed up is null.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from typing import Any

from cotenant import classes, figures, segment
from cotenant.figures import NO_USE, Of, OnGpu
from cotenant.policies import registry
from cotenant.tenants import jobs, wait_reasons
from cotenant.tenants.jobs import Job
from cotenant.top.model import GpuRow, Picture, Row
from cotenant.units import SHARE_OF_GPU

FORMAT = 1
# The first that one of its processes has is the job's.
STATES = ("evicting", "restoring", "paused", "evicted", "gated", "busy", "idle")


def frame(picture: Picture) -> dict[str, Any]:
    rows = by_tenant(picture.rows)
    return {
        "format": FORMAT,
        "host": socket.gethostname(),
        "policy": picture.seen.policy or registry.DEFAULT,
        "elapsed_seconds": picture.elapsed_ns / 1e9,
        "gpus": [gpu_shown(gpu, picture.rows) for gpu in picture.gpus],
        "jobs": [
            job_shown(picture.seen, job, [row for one in job.tenants for row in rows[id(one)]])
            for job in jobs.of(picture.seen.tenants)
        ],
    }


def series(picture: Picture) -> dict[str, float]:
    """What the history keeps: the share of each class on each GPU, and of each job on all GPUs."""
    found = {
        f"gpu/{gpu.number}/{one.name}": gpu.share(one) or 0.0
        for gpu in picture.gpus
        for one in classes.TenantClass
    }
    rows = by_tenant(picture.rows)
    for job in jobs.of(picture.seen.tenants):
        shares = (row.lately.gpu_share or 0.0 for one in job.tenants for row in rows[id(one)])
        found[f"job/{key_of(job)}"] = sum(shares)
    return found


def by_tenant(rows: Iterable[Row]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    for row in rows:
        found.setdefault(id(row.tenant), []).append(row)
    return found


def key_of(job: Job) -> str:
    """The same from look to look, and no other job's; it stands in addresses."""
    eldest = job.tenants[0]
    return f"{job.uid}-{job.id or f'{eldest.pid}-{eldest.started}'}"


def gpu_shown(gpu: GpuRow, rows: Iterable[Row]) -> dict[str, Any]:
    here = [row for row in rows if row.here.use.gpu == gpu.number]
    return {
        "gpu": gpu.number,
        "uuid": gpu.uuid,
        **gpu.state,
        "gpu_share": gpu.total,
        "class_shares": {one.name: gpu.share(one) for one in classes.TenantClass},
        "memory_bytes": sum(row.here.use.memory_bytes for row in here),
        "host_bytes": sum(
            row.tenant.host_bytes / max(len(row.tenant.uses), 1) for row in here
        ),  # a tenant counts it for all its GPUs together
        "tenants": len(here),
    }


def job_shown(seen: segment.Snapshot, job: Job, rows: Sequence[Row]) -> dict[str, Any]:
    shares = [row.lately.gpu_share for row in rows if row.lately.gpu_share is not None]
    names = {figures.class_name(one) for one in job.tenants}
    states = {figures.state(row.here) for row in rows}
    promised = {figures.promise(OnGpu(one, NO_USE)) for one in job.tenants}  # whether it is kept stands apart
    kept = {row.lately.promise_kept for row in rows}
    among_equals = rows[0] if len(rows) == 1 else None
    tenants = [tenant_shown(seen, one, [row for row in rows if row.tenant is one]) for one in job.tenants]
    return {
        "key": key_of(job),
        "job": job.name,
        "run_id": job.id,
        "user": jobs.user_name(job.uid),
        "pids": job.pids,
        "gpus": sorted({row.here.use.gpu for row in rows if row.here.use is not NO_USE}),
        "class": names.pop() if len(names) == 1 else None,
        "state": next((one for one in STATES if one in states), "idle"),
        "gpu_share": sum(shares) if shares else None,
        "promise": promised.pop() if len(promised) == 1 else None,
        "promise_kept": False if False in kept else True if True in kept else None,
        "promise_seconds": broken_for(rows),
        "share_asked": among_equals and among_equals.lately.share_asked,
        "share_got": among_equals and among_equals.lately.share_got,
        "memory_bytes": sum(row.here.use.memory_bytes for row in rows),
        "memory_limit": figures.memory_limit(job.tenants[0]),
        "memory_limit_bytes": limit_bytes(job.tenants[0], rows),
        "host_bytes": sum(one.host_bytes for one in job.tenants),
        "wait_us": most(row.lately.wait_us for row in rows),
        "wait_p50_us": most(row.lately.wait_p50_us for row in rows),
        "wait_p99_us": most(row.lately.wait_p99_us for row in rows),
        "preemptions": sum(row.here.use.preemptions for row in rows),
        "waits_for": list(dict.fromkeys(reason for one in tenants for reason in one["waits_for"])),
        "evictions": sum(one.evictions for one in job.tenants),
        "escaped": sum(row.here.use.figures["escaped"] for row in rows),
        "tenants": tenants,
    }


def broken_for(rows: Iterable[Row]) -> float | None:
    """How long the daemon has known it; None: it is kept, or no daemon has decided it."""
    return most(row.lately.promise_seconds for row in rows if row.lately.promise_kept is False)


def most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def limit_bytes(tenant: segment.Tenant, rows: Iterable[Row]) -> int | None:
    """Of the job's GPUs together; None: there is none, or it is a share of a GPU."""
    if not tenant.memory_limit or tenant.memory_limit & SHARE_OF_GPU:
        return None
    return tenant.memory_limit * max(len({row.here.use.gpu for row in rows}), 1)


def tenant_shown(seen: segment.Snapshot, tenant: segment.Tenant, rows: Sequence[Row]) -> dict[str, Any]:
    now_ns = segment.now_ns()
    return {
        **figures.read(Of.tenant, tenant),
        "started": tenant.started,
        "waits_for": [
            reason
            for row in rows
            if row.here.use.busy
            for reason in wait_reasons.reasons(seen, tenant, row.here.use, now_ns)
        ],
        "gpus": [figures.read(Of.on_gpu, row.here) for row in rows if row.here.use is not NO_USE],
    }
