"""Looks at a segment, for commands that show its tenants."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from cotenant import segment
from cotenant.errors import Problem
from cotenant.tenants import jobs
from cotenant.tenants.lately import NOTHING_KNOWN, Key, Lately, Looks
from cotenant.tenants.verdicts import NO_VERDICTS, Place, Verdict


def twice(path: Path, apart_seconds: float) -> tuple[segment.Snapshot, dict[Key, Lately]]:
    """The second look, and what happened between the two; at once where there is nobody, or no time in between."""
    seen = jobs.look(path)
    if not seen.tenants:
        return seen, dict(NOTHING_KNOWN)
    looks = Looks()
    if apart_seconds > 0:
        looks.look(seen, segment.now_ns())
        time.sleep(apart_seconds)
        seen = jobs.look(path)
    return seen, looks.look(seen, segment.now_ns(), verdicts(path))


def verdicts(path: Path) -> Mapping[Place, Verdict]:
    """On promises, by this segment's daemon; none where no daemon runs."""
    from cotenant.daemon import lock, report

    try:
        shown = report.read(path) if lock.is_held(path) else None
    except Problem:  # somebody has planted a file there: `explain` says so
        return NO_VERDICTS
    return shown.promises if shown else NO_VERDICTS
