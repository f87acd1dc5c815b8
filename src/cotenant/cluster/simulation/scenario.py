"""What the simulated cluster is given: GPUs, services that are always there, and jobs that come. Pure.

A public log says when jobs came, for how long and with how many GPUs, not what they were. So each gets a kind
(kinds.py) by lot, the same for the same seed: production jobs from the production kinds, the others from the others.
Where the log does not say which jobs are production, `production` of them are, by lot.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cotenant.classes import TenantClass
from cotenant.cluster.logs.interface import LoggedJob
from cotenant.cluster.placement.fleet import Job
from cotenant.cluster.simulation.kinds import Kind
from cotenant.errors import USAGE, Problem


@dataclass(frozen=True, slots=True)
class Coming:
    job: Job
    at_s: float
    seconds: float  # of work, with its GPUs to itself
    is_timed: bool  # it ends after so long by the clock, however slow it is, as a service does


@dataclass(frozen=True, slots=True)
class Scenario:
    log: str
    gpus: int
    memory_bytes: int  # of each GPU
    services: tuple[Job, ...]  # one on each of the first GPUs, from the begin to the end
    coming: tuple[Coming, ...]


def scenario(
    log: str,
    logged: Sequence[LoggedJob],
    kinds: Mapping[str, Kind],
    gpus: int,
    memory_bytes: int,
    jobs: int | None = None,
    load: float | None = None,
    services: int = 0,
    production: float = 0.0,
    promise: float | None = 0.05,
    seed: int = 0,
) -> Scenario:
    draw = random.Random(f"{seed} {log}")
    if services > gpus:
        raise Problem(f"{services} services do not fit on {gpus} GPUs", "one service a GPU at most", USAGE)
    most = [job for job in logged if job.gpus <= gpus]
    if not most:
        raise Problem(f"no job of {log} fits on {gpus} GPUs", "give more --gpus", USAGE)
    chosen = repeated(most, jobs or len(most))
    if load is not None:
        chosen = at_load(chosen, load, gpus)
    serving = [kind for kind in kinds.values() if kind.is_service and kind.service_weight > 0]
    above = [kind for kind in kinds.values() if kind.is_production]
    below = [kind for kind in kinds.values() if not kind.is_production]
    weights = [kind.service_weight for kind in serving]
    first = tuple(
        service(f"service-{number}", draw.choices(serving, weights)[0], promise) for number in range(services)
    )
    coming = []
    for one in chosen:
        by_lot = draw.random() < production
        is_production = by_lot if one.is_production is None else one.is_production
        kind = draw.choice(above if is_production else below)
        coming.append(Coming(job_of(one, kind, promise), one.at_s, one.seconds, kind.is_service))
    return Scenario(log, gpus, memory_bytes, first, tuple(coming))


def service(id: str, kind: Kind, promise: float | None) -> Job:
    return Job(
        id, kind.name, TenantClass.production, share=1.0, memory_bytes=kind.memory_bytes, slowdown=promise
    )


def job_of(logged: LoggedJob, kind: Kind, promise: float | None) -> Job:
    return Job(
        logged.id,
        kind.name,
        TenantClass.production if kind.is_production else TenantClass.opportunistic,
        share=logged.share,
        memory_bytes=kind.memory_bytes,
        gpus=logged.gpus,
        slowdown=promise if kind.is_production else None,
    )


def repeated(logged: Sequence[LoggedJob], count: int) -> list[LoggedJob]:
    """The first `count` jobs, or the whole log again and again, end to end."""
    span = logged[-1].at_s + (logged[-1].at_s / max(1, len(logged) - 1) or 1.0)
    found: list[LoggedJob] = []
    again = 0
    while len(found) < count:
        part = logged[: count - len(found)]
        found += [replace(job, id=f"{job.id}#{again}", at_s=job.at_s + again * span) for job in part]
        again += 1
    return found


def at_load(jobs: Sequence[LoggedJob], load: float, gpus: int) -> list[LoggedJob]:
    """Closer together or further apart, so that what is asked for while they come is `load` of all GPUs."""
    asked = sum(job.seconds * job.gpus * job.share for job in jobs)
    span = max(job.at_s for job in jobs) or 1.0
    factor = asked / (load * gpus) / span
    return [replace(job, at_s=job.at_s * factor) for job in jobs]
