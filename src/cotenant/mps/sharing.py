"""How a job of `cotenant run` shares: takes turns, or overlaps with others by way of MPS. Decided here at its start."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from cotenant import segment, units
from cotenant.classes import TenantClass
from cotenant.mps import joining, last_runs, pairs
from cotenant.mps.control import NoMps, find
from cotenant.mps.decide import AUTO, SPATIAL, TURNS, Decision, Known, Profiled, decide

WHY = "COTENANT_SHARE_WHY"
PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"


@dataclass(frozen=True)
class Wanted:
    share: str
    isolated: bool
    tenant_class: TenantClass
    sms: str | None
    memory: str | None
    job: str


def route(environment: dict[str, str], wanted: Wanted, path: Path, dry: bool = False) -> str | None:
    """Decides, and sets the environment. The reason, where the job gets fewer SMs than it has asked for. Raises NoMps
    where overlap was asked for and is not possible."""
    joining.drop_own(environment)
    if (
        kept := last_runs.file_for(environment, wanted.job)
        if dry
        else last_runs.prepare(environment, wanted.job)
    ):
        environment[last_runs.VARIABLE] = str(kept)
    sms = wanted.sms or (f"{environment[PERCENTAGE]}%" if environment.get(PERCENTAGE) else None)
    is_open = not wanted.isolated and wanted.share == AUTO
    asks = is_open or (not wanted.isolated and wanted.share == SPATIAL and sms is None)
    known = known_of(environment, wanted) if asks else None
    profile = profiled(environment, wanted.job) if asks else None
    company = is_open and is_production_in_mps(environment, path)
    may_overlap = not wanted.isolated and (
        wanted.share == SPATIAL or known is not None or profile is not None or company
    )
    program = find(environment, driver_of(environment)) if may_overlap else None
    # Where nothing speaks for overlap it is not looked for MPS either.
    decision = decide(
        wanted.share,
        wanted.tenant_class,
        wanted.isolated,
        program is not None or not may_overlap,
        known,
        company,
        profile,
        sms,
    )
    if wanted.isolated:
        joining.isolate(environment)
    if decision.share == SPATIAL:
        try:
            overlap(environment, wanted, decision.sms or wanted.sms, program, dry)
        except NoMps as trouble:
            if wanted.share == SPATIAL:
                environment[WHY] = f"{TURNS}: {trouble}"
                raise
            decision = Decision(TURNS, str(trouble))
    environment[WHY] = f"{decision.share}: {decision.reason}"
    return decision.reason if decision.sms else None


def known_of(environment: Mapping[str, str], wanted: Wanted) -> Known | None:
    known = last_runs.read(environment, wanted.job)
    seen = pairs.of_job(
        pairs.read(pairs.file_in(environment)), wanted.job, wanted.tenant_class is TenantClass.production
    )
    if seen is None:
        return known
    from cotenant.policies.guard.pairs import LEAST_TRUST
    from cotenant.policies.guard.trials import HARMLESS_TOGETHER

    met = seen.met(time.time())
    if met.trust < LEAST_TRUST:
        return known
    return replace(known or Known(1.0), harmless=met.overlap <= HARMLESS_TOGETHER)


def profiled(environment: Mapping[str, str], job: str) -> Profiled | None:
    """On the model of the GPU that the job sees first; None: nothing is known."""
    from cotenant.profile import store

    by_model = store.job(environment, job)
    if not by_model:
        return None
    from cotenant.gpus import naming, nvml

    found = by_model.get(naming.first_model(environment, nvml.installed(driver_of(environment))))
    return Profiled(found.filled, found.sms, found.rest_us) if found else None


def overlap(
    environment: dict[str, str], wanted: Wanted, sms: str | None, program: str | None, dry: bool
) -> None:
    if program is None:
        raise NoMps("nvidia-cuda-mps-control is not installed")
    if joining.find_running(environment, program) is None:
        place = joining.place_for(environment)
        would_be = place.current or place.generation(1)
        generation = would_be if dry else joining.join(environment, program)
        environment["CUDA_MPS_PIPE_DIRECTORY"] = str(generation.pipe)
        environment[joining.FAULTS] = str(generation.faults)
    is_production = wanted.tenant_class is TenantClass.production
    environment["CUDA_MPS_CLIENT_PRIORITY"] = "0" if is_production else "1"
    if sms:
        environment[PERCENTAGE] = sms.removesuffix("%")
    if wanted.memory:
        environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = memory_limits(environment, wanted.memory)


def memory_limits(environment: Mapping[str, str], memory: str) -> str:
    """As MPS has them: for each GPU that the job sees, by the number that it has there."""
    from cotenant.gpus import naming, nvml

    listed = nvml.installed(driver_of(environment)) or []
    visible = naming.visible_now(environment)
    count = len(visible) if visible is not None else len(listed)
    limit = units.encoded_limit(memory)
    if limit & units.SHARE_OF_GPU:
        # Which of them each number means is CUDA's to know; the smallest limit of all would refuse too soon.
        largest = max((gpu.memory_bytes for gpu in listed), default=0)
        limit = largest * (limit - units.SHARE_OF_GPU) // 1_000_000
    megabytes = -(-limit // (1 << 20))
    return ",".join(f"{number}={megabytes}M" for number in range(max(count, 1)))


def is_production_in_mps(environment: Mapping[str, str], path: Path) -> bool:
    """In the daemon that this job would join."""
    if joining.place_for(environment).current is None:
        return False
    try:
        tenants = segment.read(path).tenants
    except (OSError, segment.BadSegment):
        return False
    return any(
        one.mps_daemon
        and not one.mps_fault
        and one.tenant_class == TenantClass.production
        and one.uid == os.getuid()
        for one in tenants
    )


def driver_of(environment: Mapping[str, str]) -> Path | None:
    named = environment.get("COTENANT_DRIVER")
    return Path(named) if named else None
