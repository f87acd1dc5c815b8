"""Jobs of another version of Cotenant: their segment has another layout and another name, so these jobs and ours know
nothing of each other, on the same GPU.
"""

from __future__ import annotations

import re
from pathlib import Path

from cotenant.daemon import lock
from cotenant.errors import Problem

NAMED = re.compile(r"(.+\.v)\d+")


def in_use(path: Path) -> str:
    """Segments beside this one whose names differ in the version only, where a daemon looks after jobs."""
    named = NAMED.fullmatch(path.name)
    if not named:
        return ""
    beside = (one for one in path.parent.glob(f"{named[1]}*") if NAMED.fullmatch(one.name) and one != path)
    return ", ".join(sorted(str(one) for one in beside if is_looked_after(one)))


def is_looked_after(path: Path) -> bool:
    try:
        return lock.is_held(path)
    except Problem:
        return False  # somebody else's
