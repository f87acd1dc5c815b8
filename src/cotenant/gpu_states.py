"""How fast each GPU runs, as the daemon last saw it: for people and programs that ask `status` and `explain`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cotenant import segment
from cotenant.daemon import lock, report
from cotenant.daemon.clocks import STALE_SECONDS, Reading
from cotenant.errors import Problem
from cotenant.policies.interface import GpuState

States = Mapping[int, Reading] | str  # by the GPU's number, or why nobody has looked


def read(path: Path) -> States:
    """What the daemon of this segment has seen."""
    try:
        shown = report.read(path) if lock.is_held(path) else None
    except Problem as problem:
        return f"{problem.message}: {problem.hint}"
    return shown.gpus if shown else "no daemon runs"


def figures(states: States, gpu: int) -> dict[str, Any]:
    """Of one GPU: what NVML said and how long ago, and the same in words. What is not known is None."""
    reading = Reading(problem=states) if isinstance(states, str) else states.get(gpu, Reading())
    told = asdict(reading.state or GpuState(0))
    del told["at_us"]
    if reading.state is None:
        why = reading.problem or "nobody has worked on it since the daemon began"
        words = f"How fast the GPU runs is not known: {why}."
        return told | {"throttled": None, "seconds_ago": None, "in_words": words}
    ago = max(0.0, segment.now_ns() / 1e9 - reading.state.at_us / 1e6)
    when = f", {ago:.0f} s ago." if ago > STALE_SECONDS else "."
    words = reading.state.in_words().removesuffix(".") + when
    return told | {"throttled": reading.state.throttled, "seconds_ago": round(ago, 3), "in_words": words}
