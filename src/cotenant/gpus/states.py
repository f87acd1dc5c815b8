"""How fast each GPU runs, and who uses it past Cotenant, as the daemon last saw it, for `status` and `explain`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cotenant import segment
from cotenant.daemon import lock, report
from cotenant.daemon.clocks import STALE_SECONDS, Reading
from cotenant.errors import Problem
from cotenant.gpus import outsiders
from cotenant.policies.interface import GpuState
from cotenant.tenants import jobs

NEGLIGIBLE = 0.01


def read(path: Path) -> report.Shown | str:
    """The report of this segment's daemon, or why there is none."""
    try:
        shown = report.read(path) if lock.is_held(path) else None
    except Problem as problem:
        return f"{problem.message}: {problem.hint}"
    return shown or "no daemon runs"


def figures(shown: report.Shown | str, gpu: int, tenants: Sequence[segment.Tenant]) -> dict[str, Any]:
    """Of one GPU: what NVML said and how long ago, and the same in words; `tenants` are all of the segment. What is not
    known is None."""
    reading = Reading(problem=shown) if isinstance(shown, str) else shown.gpus.get(gpu, Reading())
    told = asdict(reading.state or GpuState(0)) | outside(reading, tenants)
    del told["at_us"]
    if reading.state is None:
        why = reading.problem or "nobody has worked on it since the daemon began"
        words = f"How fast the GPU runs is not known: {why}."
        return told | {"throttled": None, "seconds_ago": None, "in_words": words}
    ago = max(0.0, segment.now_ns() / 1e9 - reading.state.at_us / 1e6)
    when = f", {ago:.0f} s ago." if ago > STALE_SECONDS else "."
    words = reading.state.in_words().removesuffix(".") + when
    return told | {"throttled": reading.state.throttled, "seconds_ago": round(ago, 3), "in_words": words}


def outside(reading: Reading, tenants: Sequence[segment.Tenant]) -> dict[str, Any]:
    found = outsiders.among(reading.processes, tenants)
    if found is None:
        return {"outsiders": None, "outsider_pids": None, "outside_in_words": []}
    pids = [one.pid for one in found]
    return {
        "outsiders": len(pids),
        "outsider_pids": pids,
        "outside_in_words": list(outsiders.in_words(found)),
    }


def at_work(shown: report.Shown | str, tenant: segment.Tenant, gpu: int) -> dict[str, Any] | None:
    """The clock while a production tenant had work of late; by how much its kernels take longer than at the GPU's
    highest clock, if they are bound by the SMs alone; the same in words, where it is worth a word."""
    if isinstance(shown, str):
        return None
    mhz = shown.clocks.get((tenant.own_pid, tenant.started, gpu))
    state = shown.gpus.get(gpu, Reading()).state
    if not mhz or not state or not state.highest_mhz:
        return None
    slower = max(0.0, state.highest_mhz / mhz - 1)
    words = (
        f"While {jobs.named(tenant)} had work the clock was {mhz:.0f} MHz of late: its kernels take up to"
        f" {slower:.0%} longer than at {state.highest_mhz:.0f} MHz, whoever else is there."
    )
    return {"clock_mhz": round(mhz, 1), "slower": slower, "in_words": words if slower > NEGLIGIBLE else ""}
