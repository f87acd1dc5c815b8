"""Choosing the policy of a segment: a name in its header, which the daemon follows while it runs."""

from __future__ import annotations

import os
from pathlib import Path

from cotenant import segment
from cotenant.errors import USAGE, Problem
from cotenant.policies import registry


def checked(name: str) -> str:
    """As the daemon, which works in another folder, must be told it. Raises a Problem where there is no such policy."""
    told = str(Path(name).absolute()) if os.sep in name or ".py" in name else name
    registry.find_live(told)
    return told


def for_segment(name: str) -> str:
    told = checked(name)
    if len(told.encode()) > segment.LONGEST_POLICY_NAME:
        hint = f"`cotenant daemon --policy {name}` takes a path of any length"
        raise Problem(f"{told} has over {segment.LONGEST_POLICY_NAME} characters", hint, USAGE)
    return told
