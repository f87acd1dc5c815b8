"""A workload: jobs, each a program of operations cut into requests, and when the requests arrive. Pure."""

from __future__ import annotations

import enum
import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from cotenant.classes import TenantClass
from cotenant.errors import USAGE, Problem
from cotenant.simulator import native
from cotenant.simulator.machine import SimulatedGpu


class OpKind(enum.IntEnum):
    """The values are those of `Kind` in native/admission/moment.h."""

    kernel = 0
    graph = 1
    copy_to_device = 2
    copy_to_host = 3
    copy_on_device = 4


@dataclass(frozen=True, slots=True)
class Op:
    """`sms` and `gbps` up to 1 are shares of the GPU's, above that they are numbers."""

    kind: OpKind = OpKind.kernel
    us: float = 0.0  # alone; a copy's follows from its bytes
    sms: float = 1.0
    gbps: float = 0.0
    bytes: int = 0
    gap_us: float = 0.0  # of the CPU, from the launch before it
    block_us: float | None = None  # how long one block runs; None: the whole kernel, at most 300 us
    sync: bool = False  # launched only when all before it are done
    repeat: int = 1
    sigma: float = 0.0  # of the log-normal distribution that the repeated ones' durations are drawn from


LONGEST_BLOCK_US = 300.0

OP_RECORD = np.dtype(
    [
        ("us", "f4"),
        ("sms", "f4"),
        ("gbps", "f4"),
        ("gap_us", "f4"),
        ("block_us", "f4"),
        ("kind", "u1"),
        ("sync", "u1"),
        ("bound", "u1"),  # 1 + what a profile says limits it (KernelClass, no copies); 0: its bandwidth tells
        ("unused", "u1"),
    ]
)


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Ready-made operations: what a recorded trace is. `request_ends` grow; the last is the number of operations."""

    ops: npt.NDArray[np.void]  # of OP_RECORD
    request_ends: npt.NDArray[np.uint32]


class ArrivalKind(enum.IntEnum):
    """The values are those of `Arrivals` in native/sim/job.h."""

    closed = 0
    poisson = 1
    uniform = 2
    bursty = 3
    listed = 4


@dataclass(frozen=True, slots=True)
class Arrivals:
    kind: ArrivalKind = ArrivalKind.closed
    rate: float = 0.0  # requests a second, over a long time
    burst_s: float = 1.0  # bursty: how long bursts last in the mean
    pause_s: float = 1.0
    at_s: tuple[float, ...] = ()  # listed: moments after the job's begin


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    tenant_class: TenantClass = TenantClass.production
    ops: tuple[Op, ...] = ()
    layers: int = 1  # how often `ops` follow each other in one request
    program: Program | None = None  # instead of ops
    recorded_on: tuple[str, int] | None = None  # the GPU of a recorded program: its name and SMs
    arrivals: Arrivals = field(default_factory=Arrivals)
    requests: int = 0  # 0: no end
    think_ms: tuple[float, float] = (0.0, 0.0)  # CPU time before each request: least and most
    waits: bool = True  # the CPU synchronises at the end of each request
    trains: bool = False
    spread: float = 0.0  # sigma of log-normal durations, anew for each operation
    request_spread: float = 0.0  # the same for whole requests
    begins_s: float = 0.0
    run_ahead_us: float = 10_000.0  # how much work the CPU queues where no knob limits it
    weight: float = 1.0
    slowdown: float | None = None
    floor: float = 0.0
    clock: float = 1.0  # what the SM clock is while it alone runs, of the highest
    share_request: float = 0.0
    share_limit: float = 1.0
    memory_bytes: int = 0  # that it keeps
    ephemeral_bytes: int = 0  # that it needs within an iteration
    gpu: int | None = None  # None: where fewest are
    copies: int = 1
    begins_every_s: float = 0.0  # how much later each copy begins than the one before


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    jobs: tuple[Job, ...]
    title: str = ""
    seconds: float = 20.0
    gpus: int = 1


def program_of(job: Job, gpu: SimulatedGpu, seed: int) -> Program:
    """One request of the job's operations, or its trace; durations of `sigma` are drawn once: a model keeps its own."""
    if job.program is not None:
        return job.program
    draw = LogNormal(f"{seed} {job.name}")
    rows: list[tuple[float, float, float, float, float, int, int, int, int]] = []
    for _ in range(job.layers):
        for op in job.ops:
            for _ in range(op.repeat):
                rows.append(_row(op, gpu, draw))
    ops = np.array(rows, dtype=OP_RECORD)
    return Program(ops, np.array([len(ops)], dtype=np.uint32))


class LogNormal:
    """Numbers of mean 1, the same on every machine: Python's own take their logarithms from the C library."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)
        self._pair: tuple[float, float] | None = None

    def draw(self, sigma: float) -> float:
        sine = self._pair is not None
        turn, part = self._pair or (self._random.random(), self._random.random())
        self._pair = None if sine else (turn, part)
        return float(native.library().cotenant_sim_log_normal(sigma, turn, part, sine))


def _row(
    op: Op, gpu: SimulatedGpu, log_normal: LogNormal
) -> tuple[float, float, float, float, float, int, int, int, int]:
    copies = op.kind >= OpKind.copy_to_device
    us = gpu.copy_us(op.bytes, op.kind is OpKind.copy_on_device) if copies else op.us
    if op.sigma > 0:
        us *= log_normal.draw(op.sigma)
    sms = op.sms * gpu.sms if op.sms <= 1 else op.sms
    gbps = op.gbps * gpu.memory_gbps if op.gbps <= 1 else op.gbps
    block = min(us, LONGEST_BLOCK_US) if op.block_us is None else op.block_us
    return (us, 0 if copies else max(1, sms), gbps, op.gap_us, block, int(op.kind), int(op.sync), 0, 0)


def draws(job: Job) -> bool:
    """Whether anything about it is random: then what it does depends on its name."""
    return (
        job.spread > 0
        or job.request_spread > 0
        or job.think_ms[0] != job.think_ms[1]
        or job.arrivals.kind in (ArrivalKind.poisson, ArrivalKind.bursty)
        or any(op.sigma > 0 for op in job.ops)
    )


def placed(workload: Workload) -> list[list[Job]]:
    """The jobs of each GPU, copies written out: name, name-2, name-3 …"""
    gpus: list[list[Job]] = [[] for _ in range(workload.gpus)]
    for job in workload.jobs:
        for copy in range(job.copies):
            name = job.name if copy == 0 else f"{job.name}-{copy + 1}"
            there = job.gpu if job.gpu is not None else min(range(len(gpus)), key=lambda i: len(gpus[i]))
            begins = job.begins_s + copy * job.begins_every_s
            gpus[there].append(replace(job, name=name, copies=1, gpu=there, begins_s=begins))
    return gpus


def check(workload: Workload, gpu: SimulatedGpu) -> None:
    """Raises a Problem where this cannot run there."""

    def refuse(what: str, fix: str) -> None:
        raise Problem(f"workload '{workload.name}': {what}", fix, USAGE)

    if not workload.jobs:
        refuse("it has no jobs", "add a [[job]]")
    if workload.gpus < 1 or workload.seconds <= 0:
        refuse("it needs at least one GPU and some time", "see gpus and seconds")
    for jobs in placed_or_refused(workload):
        endless = 0
        if twice := next(
            (name for name, count in Counter(job.name for job in jobs).items() if count > 1), None
        ):
            refuse(f"two jobs on one GPU are called '{twice}'", "give each a name of its own")
        floors = sum(job.floor for job in jobs)
        if floors > 0.9:
            refuse(f"the floors on one GPU add up to {floors:.0%}", "lower them to 90% together")
        for job in jobs:
            if wrong := mistake(job):
                refuse(f"'{job.name}': {wrong[0]}", wrong[1])
            need = job.memory_bytes + job.ephemeral_bytes
            if need > gpu.memory_bytes:
                refuse(
                    f"'{job.name}' needs {need / 2**30:.1f} GiB, {gpu.name} has {gpu.memory_bytes / 2**30:.1f}",
                    "make it smaller, or take a larger GPU",
                )
            endless += 0 if job.requests else need
        if endless > gpu.memory_bytes:
            refuse(
                f"its jobs need {endless / 2**30:.1f} GiB at once, {gpu.name} has {gpu.memory_bytes / 2**30:.1f}",
                "use more GPUs (gpus = N) or fewer jobs",
            )


def mistake(job: Job) -> tuple[str, str] | None:
    """What a job made in Python can have wrong; workload_file.py refuses the same with more words."""
    if (job.program is None) == (not job.ops):
        return "it needs ops or a program, one of them", "give it one"
    if (
        job.arrivals.kind not in (ArrivalKind.closed, ArrivalKind.listed)
        and not 0 < job.arrivals.rate < math.inf
    ):
        return f"arrivals '{job.arrivals.kind.name}' need a rate", "a number of requests a second, above 0"
    if not (0.1 <= job.weight <= 100 and 0 <= job.floor <= 0.9 and job.layers >= 1 and job.requests >= 0):
        return "its weight, floor, layers or requests cannot be", "docs/simulator.md has their limits"
    if not 0.1 <= job.clock <= 1:
        return f"its clock cannot be {job.clock}", "a share of the highest, 0.1 to 1"
    for op in job.ops:
        amounts = (op.us, op.sms, op.gbps, op.bytes, op.gap_us, op.sigma, op.block_us or 0)
        if not all(0 <= amount < math.inf for amount in amounts) or op.repeat < 1:
            return f"{op} cannot be", "its numbers are 0 or more, repeat is 1 or more"
        if not (op.bytes if op.kind >= OpKind.copy_to_device else op.us):
            return f"{op} has no length", "a kernel has us, a copy has bytes"
    return None


def placed_or_refused(workload: Workload) -> Sequence[Sequence[Job]]:
    for job in workload.jobs:
        if job.gpu is not None and not 0 <= job.gpu < workload.gpus:
            raise Problem(
                f"workload '{workload.name}': '{job.name}' is on GPU {job.gpu}, there are {workload.gpus}",
                "raise gpus = N",
                USAGE,
            )
    return placed(workload)
