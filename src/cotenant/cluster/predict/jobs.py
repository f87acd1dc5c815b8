"""A recorded job as one of a pair. Production answers the request from the middle of its trace again and again; the
other job repeats its steps and never waits for a result before it launches the next."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cotenant.classes import TenantClass
from cotenant.simulator.workload import ArrivalKind, Arrivals, Job, Program

FIRST_GAP_US = 30.0  # of the CPU, from taking a request up to its first launch


def one_request(program: Program) -> Program:
    """One from the middle of a trace; the pause before it is not the job's but the arrivals'."""
    ends = program.request_ends
    middle = len(ends) // 2
    begin = ends[middle - 1] if middle else 0
    ops = program.ops[begin : ends[middle]].copy()
    ops["gap_us"][0] = FIRST_GAP_US
    ops["sync"][0] = 0
    return Program(ops, np.array([len(ops)], dtype=np.uint32))


def running_ahead(program: Program) -> Program:
    """The steps from the middle of a trace, of which the CPU is always some ahead."""
    count = len(program.request_ends)
    if count < 4:
        ops = program.ops.copy()
        ops["sync"] = 0
        return Program(ops, program.request_ends)
    first, last = count // 4, 3 * count // 4
    begin = program.request_ends[first]
    ops = program.ops[begin : program.request_ends[last]].copy()
    ops["sync"] = 0
    return Program(ops, (program.request_ends[first + 1 : last + 1] - begin).astype(np.uint32))


def pauses_ms(program: Program) -> tuple[float, float]:
    """Before requests, as recorded: all but the shortest and the longest tenth lie between these."""
    begins = np.append(0, program.request_ends[:-1])[1:]
    if not len(begins):
        return (0.0, 0.0)
    least, most = np.quantile(program.ops["gap_us"][begins], (0.1, 0.9)) / 1000
    return (float(least), float(most))


def production(job: Job, rate: float | None) -> Job:
    """With requests a second (`rate`, Poisson), or at its own recorded pace."""
    if job.program is None:
        return replaced(job, TenantClass.production, waits=job.waits)
    think = (0.0, 0.0) if rate else pauses_ms(job.program)
    arrivals = Arrivals(ArrivalKind.poisson, rate) if rate else Arrivals()
    return replaced(
        job,
        TenantClass.production,
        program=one_request(job.program),
        arrivals=arrivals,
        think_ms=think,
    )


def other(job: Job) -> Job:
    if job.program is None:
        return replaced(job, TenantClass.opportunistic, waits=False)
    return replaced(job, TenantClass.opportunistic, program=running_ahead(job.program), waits=False)


def replaced(job: Job, tenant_class: TenantClass, **more: object) -> Job:
    from dataclasses import replace

    return replace(job, tenant_class=tenant_class, **more)  # type: ignore[arg-type]


def read(path: Path) -> Job:
    """A recorded trace, or a profile: a workload file with one job."""
    from cotenant.errors import USAGE, Problem
    from cotenant.simulator.workload_file import read_workload, trace_job

    if path.suffix == ".trace":
        return trace_job(path, path.stem, TenantClass.production)
    if path.suffix == ".toml":
        workload = read_workload(path)
        if len(workload.jobs) == 1:
            return workload.jobs[0]
        raise Problem(f"{path} has {len(workload.jobs)} jobs, not one", "a profile is one [[job]]", USAGE)
    raise Problem(f"'{path}' is no recorded job", "give a .trace, or a .toml with one job", USAGE)
