"""Looks at a segment, for commands that show its tenants."""

from __future__ import annotations

import time
from pathlib import Path

from cotenant import segment
from cotenant.errors import Problem
from cotenant.tenants import jobs
from cotenant.tenants.lately import NOTHING_KNOWN, Key, Lately, Looks


def read(path: Path) -> segment.Snapshot:
    """Without a segment there are no tenants: the first one makes it. Raises Problem for what is no segment."""
    try:
        return segment.read(path)
    except FileNotFoundError:
        return segment.Snapshot({}, (), 0)
    except segment.BadSegment as error:
        raise Problem(str(error), jobs.ELSEWHERE) from None


def twice(path: Path, apart_seconds: float) -> tuple[segment.Snapshot, dict[Key, Lately]]:
    """The second look, and what happened between the two; at once where there is nobody, or no time in between."""
    seen = read(path)
    if not seen.tenants or apart_seconds <= 0:
        return seen, dict(NOTHING_KNOWN)
    looks = Looks()
    looks.look(seen, segment.now_ns())
    time.sleep(apart_seconds)
    seen = read(path)
    return seen, looks.look(seen, segment.now_ns())
