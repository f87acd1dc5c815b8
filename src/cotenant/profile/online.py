"""A profile from traces: what the interposer records of a job, with estimates of what only counters could tell."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cotenant.profile import job as jobs
from cotenant.profile import peaks, store
from cotenant.profile.columns import Columns
from cotenant.profile.job import Job
from cotenant.profile.kernel import Kernel, merged
from cotenant.profile.store import Model
from cotenant.tenants import breakdown
from cotenant.traces.export import title
from cotenant.traces.summary import peak_memory
from cotenant.traces.trace import GPU_KINDS, Kind, Shape, Trace


@dataclass(frozen=True)
class Found:
    """What one run showed, on one model of GPU."""

    gpu: Model
    kernels: tuple[Kernel, ...]
    job: Job


def today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def model_of(trace: Trace) -> Model | None:
    """None: it names no GPU."""
    if not trace.gpus:
        return None
    gpu = trace.gpus[0]
    return Model(gpu.name, gpu.sms, gpu.memory_gbps or peaks.memory_gbps(gpu.name))


def kernels_of(trace: Trace) -> list[Kernel]:
    """What it launched; what was only captured into graphs is a part of these."""
    ops = trace.operations
    runs = np.isin(ops.kind, GPU_KINDS)
    counts = np.bincount(ops.shape[runs], minlength=len(trace.shapes)).tolist()
    found: dict[tuple[object, ...], Kernel] = {}
    for shape, columns, count in zip(trace.shapes, trace.columns, counts, strict=False):
        if not count:
            continue
        one = Kernel(
            kind=shape.kind.name,
            name=title(shape, shape.kind) if shape.kind is not Kind.kernel else shape.name,
            grid=shape.grid,
            block=shape.block,
            shared_bytes=shape.shared_bytes,
            bytes=shape.bytes,
            launches=count,
            samples=shape.samples,
            mean_us=shape.mean_us,
            min_us=shape.min_us,
            max_us=shape.max_us,
            sms=shape.sms,
            blocks_per_sm=shape.blocks_per_sm,
            registers=shape.registers,
            static_shared_bytes=shape.static_shared_bytes,
            columns=columns,
            seen=today(),
        )
        # Two modules may hold the same kernel, and graphs have no name of their own.
        known = found.get(one.key)
        found[one.key] = merged(known, one) if known else one
    return list(found.values())


def of_run(traces: Sequence[Trace]) -> Found | None:
    """Of the processes of one run; those on the model of GPU with the most work. None: none of them had work."""
    by_model: dict[Model, list[Trace]] = {}
    for trace in traces:
        model = model_of(trace)
        if model and len(trace.operations):
            by_model.setdefault(model, []).append(trace)
    if not by_model:
        return None
    model, here = max(by_model.items(), key=lambda item: sum(len(one.operations) for one in item[1]))
    together: dict[tuple[object, ...], Kernel] = {}
    for one in (kernel for trace in here for kernel in kernels_of(trace)):
        known = together.get(one.key)
        together[one.key] = merged(known, one) if known else one
    # However many processes launched it: it was one run.
    found = tuple(replace(one, runs=1) for one in together.values())
    return Found(model, found, job_of(here, found, model))


def job_of(traces: Sequence[Trace], kernels: Sequence[Kernel], model: Model) -> Job:
    """Of its processes the one with the most work tells how long it worked; memory adds up."""
    parts = [part for trace in traces if (part := breakdown.sums_in_trace(trace.facts))]
    most = max(parts, key=lambda part: part["busy_ns"], default={"busy_ns": 0, "gap_ns": 0})
    seconds = most["busy_ns"] / 1e9
    filled = 1 - min(most["gap_ns"] / most["busy_ns"], 1.0) if seconds >= jobs.SHORTEST_SECONDS else None
    classes, tensor = jobs.by_class(kernels)
    return Job(
        seconds=seconds,
        filled=filled,
        sms=jobs.sms_filled(kernels, model.sms),
        memory_bytes=sum(peak_memory(trace) for trace in traces),
        gpu_bytes=max(trace.gpus[0].memory_bytes for trace in traces),
        classes=classes,
        tensor=tensor,
        seen=today(),
        rest_us=jobs.rest_us(kernels),
    )


def annotated(trace: Trace, environment: Mapping[str, str]) -> Trace:
    """With what is kept of its kernels, measured or estimated, in its shapes."""
    model = model_of(trace)
    path = store.kernel_file(environment, model.name) if model else None
    try:
        known = store.profile_in(path).kernels if path else {}
    except (OSError, store.Unreadable):
        known = {}

    def columns(shape: Shape, estimated: Columns) -> Columns:
        kept = known.get(
            (shape.kind.name, shape.name, shape.grid, shape.block, shape.shared_bytes, shape.bytes)
        )
        return kept.columns if kept and kept.columns.measured else estimated

    shapes = tuple(
        replace(shape, columns=columns(shape, estimated))
        for shape, estimated in zip(trace.shapes, trace.columns, strict=True)
    )
    return replace(trace, shapes=shapes)
