"""Looks at a segment, for commands that show its tenants."""

from __future__ import annotations

import time
from pathlib import Path

from cotenant import segment
from cotenant.tenants import jobs
from cotenant.tenants.lately import NOTHING_KNOWN, Key, Lately, Looks


def twice(path: Path, apart_seconds: float) -> tuple[segment.Snapshot, dict[Key, Lately]]:
    """The second look, and what happened between the two; at once where there is nobody, or no time in between."""
    seen = jobs.look(path)
    if not seen.tenants or apart_seconds <= 0:
        return seen, dict(NOTHING_KNOWN)
    looks = Looks()
    looks.look(seen, segment.now_ns())
    time.sleep(apart_seconds)
    seen = jobs.look(path)
    return seen, looks.look(seen, segment.now_ns())
