"""Where the time of production's bursts went in a window, as its own watcher saw it (cotenant.tenants.breakdown)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from cotenant import segment
from cotenant.tenants import breakdown

_SUMS = ("busy_ns", "waits", "waited_ns", "gap_ns")


def look(path: Path, pid: int) -> segment.Use | None:
    """None where the process is no tenant, or the segment is not ours to read."""
    try:
        tenants = segment.read(path).tenants
    except (OSError, segment.BadSegment):
        return None
    return next((tenant.uses[0] for tenant in tenants if tenant.pid == pid and tenant.uses), None)


def between(before: segment.Use | None, after: segment.Use | None) -> segment.Use | None:
    if before is None or after is None:
        return None
    bursts = after.figures["bursts"] - before.figures["bursts"]
    sums = {name: getattr(after, name) - getattr(before, name) for name in _SUMS}
    return dataclasses.replace(after, figures={"bursts": bursts}, **sums)


def together(windows: Sequence[segment.Use | None]) -> breakdown.Breakdown | None:
    known = [window for window in windows if window is not None]
    if not known:
        return None
    sums = {name: sum(getattr(window, name) for window in known) for name in _SUMS}
    bursts = sum(window.figures["bursts"] for window in known)
    return breakdown.of(dataclasses.replace(known[-1], figures={"bursts": bursts}, **sums))
