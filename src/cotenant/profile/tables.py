"""Profiles for people: the kernels that took the most time, and the classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cotenant.profile import job as jobs
from cotenant.profile import kernel as kernels
from cotenant.profile import names
from cotenant.profile.job import Job
from cotenant.profile.kernel import Kernel
from cotenant.profile.store import Model, Profile, top
from cotenant.terminal import console, say

SCHEMA = 1
COLUMNS = (
    "gpu", "kind", "name", "grid", "block", "shared_bytes", "bytes", "launches", "runs", "samples", "mean_us", "min_us",
    "max_us", "total_us", "sms", "blocks_per_sm", "registers", "static_shared_bytes", "class", "tensor", "measured",
    "compute", "memory_gbps", "seen",
)  # fmt: skip


def in_words(classes: Mapping[str, float], tensor: float) -> str:
    """ "compute 61 % (tensor cores 58 %), memory 30 %"."""
    parts = []
    for name in ("compute", "memory", "copy", "unknown"):
        if (share := classes.get(name, 0.0)) >= 0.005:
            on_tensor_cores = name == "compute" and tensor >= 0.005
            parts.append(f"{name} {share:.0%}" + (f" (tensor cores {tensor:.0%})" if on_tensor_cores else ""))
    if tensor >= 0.005 and classes.get("compute", 0.0) < 0.005:
        parts.append(f"on tensor cores {tensor:.0%}")
    return ", ".join(parts) or "nothing was timed"


def about(job: Job) -> str:
    # A trace of an older version does not say it.
    parts = [f"{job.seconds:.1f} s at work"] if job.seconds else []
    if job.filled is not None:
        parts.append(f"waits for its own CPU {1 - job.filled:.0%}")
    if job.sms is not None:
        parts.append(f"fills {job.sms:.0%} of the SMs")
    parts.append(f"{job.memory_bytes / 2**30:.1f} GiB")
    return ", ".join(parts)


def print_profile(profile: Profile, count: int) -> None:
    from rich.table import Table

    found = list(profile.kernels.values())
    shares, tensor = jobs.by_class(found)
    whole = sum(one.total_us for one in found) or 1.0
    gpu = profile.gpu
    bandwidth = f", {gpu.memory_gbps:.0f} GB/s" if gpu.memory_gbps else ""
    say(f"{gpu.name}, {gpu.sms} SMs{bandwidth}: {len(found)} kernels, copies and graphs")
    say(f"time by class: {in_words(shares, tensor)}")
    table = Table(box=None, pad_edge=False)
    for name in ("SHARE", "TOTAL ms", "MEAN us", "COUNT", "SMS", "REGS"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("CLASS", "TC"):
        table.add_column(name, no_wrap=True)
    for name in ("COMPUTE", "GB/s"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("GRID x BLOCK", no_wrap=True)
    table.add_column("KERNEL", no_wrap=True)
    for one in top(found, count):
        table.add_row(*cells(one, whole))
    console(width=400).print(table)
    if any(not one.columns.measured for one in found):
        say("~ is an estimate; `cotenant profile --source ncu` measures where Nsight Compute is allowed")


def cells(one: Kernel, whole_us: float) -> tuple[str, ...]:
    columns = one.columns
    mark = "" if columns.measured else "~"
    timed = one.samples > 0
    return (
        f"{100 * one.total_us / whole_us:.1f} %" if timed else "?",
        f"{one.total_us / 1000:.2f}" if timed else "?",
        f"{one.mean_us:.2f}" if timed else "?",
        str(one.launches),
        str(one.sms or ""),
        str(one.registers or ""),
        ("" if one.kind != "kernel" else mark) + columns.kernel_class.name,
        "yes" if columns.tensor else "",
        f"{mark}{columns.compute:.0%}" if columns.compute is not None else "",
        f"{mark}{columns.memory_gbps:.0f}" if columns.memory_gbps is not None else "",
        f"{shape(one)}",
        names.short(one.name),
    )


def shape(one: Kernel) -> str:
    if one.kind != "kernel":
        return f"{one.bytes} bytes" if one.bytes else ""
    return f"{size(one.grid)} x {size(one.block)}"


def size(of: Sequence[int]) -> str:
    shown = list(of)
    while len(shown) > 1 and shown[-1] == 1:
        shown.pop()
    return ",".join(map(str, shown))


def as_json(
    profiles: Sequence[Profile], known: Mapping[str, Mapping[str, Job]], count: int
) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "gpus": [of_gpu(profile, count) for profile in profiles],
        "jobs": {
            name: {gpu: jobs.as_json(job) for gpu, job in by_gpu.items()} for name, by_gpu in known.items()
        },
    }


def of_gpu(profile: Profile, count: int) -> dict[str, Any]:
    found = list(profile.kernels.values())
    shares, tensor = jobs.by_class(found)
    return {
        "gpu": model(profile.gpu),
        "classes": {name: round(share, 4) for name, share in shares.items()},
        "tensor": round(tensor, 4),
        "kernels": [row(one) for one in top(found, count)],
    }


def model(gpu: Model) -> dict[str, Any]:
    return {"name": gpu.name, "sms": gpu.sms, "memory_gbps": gpu.memory_gbps}


def row(one: Kernel) -> dict[str, Any]:
    return kernels.as_json(one) | {"total_us": round(one.total_us, 3)}


def write_csv(profiles: Sequence[Profile], count: int, out: Any) -> None:
    import csv

    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for profile in profiles:
        for one in top(list(profile.kernels.values()), count):
            values = row(one) | {"gpu": profile.gpu.name, "grid": size(one.grid), "block": size(one.block)}
            writer.writerow(["" if values[name] is None else values[name] for name in COLUMNS])
