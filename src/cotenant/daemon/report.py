"""What the daemon shows: SEGMENT.daemon.json, whole at every moment, for `cotenant explain`.

    {"pid", "policy", "since", "problem", "tenants": [{"pid", "started", "gpu", "decisions": [{"at", "text"}]}]}

Times are seconds since 1970. A decision's time is that of the report in which it was first seen: controllers know no
clock.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Key = tuple[int, int, int]  # PID, when it was started, GPU
SHORTEST_PAUSE_SECONDS = 0.25


def file_for(path: Path) -> Path:
    return path / "daemon.json" if path.is_dir() else path.with_name(path.name + ".daemon.json")


@dataclass(frozen=True)
class Decision:
    at: float
    text: str


class Report:
    def __init__(self, path: Path) -> None:
        self.file = file_for(path)
        self.since = time.time()
        self.decisions: dict[Key, list[Decision]] = {}
        self.written: object = None
        self.next_write = 0.0

    def is_due(self) -> bool:
        return time.monotonic() >= self.next_write

    def show(self, policy: str, problem: str, lines: Mapping[Key, Sequence[str]]) -> None:
        now = time.time()
        self.decisions = {key: self.stamped_for(key, said, now) for key, said in lines.items()}
        content = {
            "pid": os.getpid(),
            "policy": policy,
            "since": self.since,
            "problem": problem,
            "tenants": [
                {"pid": pid, "started": started, "gpu": gpu, "decisions": [vars(one) for one in decisions]}
                for (pid, started, gpu), decisions in self.decisions.items()
            ],
        }
        self.next_write = time.monotonic() + SHORTEST_PAUSE_SECONDS
        if content != self.written:
            # A full disk is no reason to stop looking after the tenants.
            with contextlib.suppress(OSError):
                beside = self.file.with_name(self.file.name + ".new")
                beside.write_text(json.dumps(content))
                beside.replace(self.file)
                self.written = content

    def stamped_for(self, key: Key, said: Sequence[str], now: float) -> list[Decision]:
        """One that has just come is told what was decided before: the times are those of the ones who were there."""
        before = self.decisions.get(key)
        there = [told for (_, _, gpu), told in self.decisions.items() if gpu == key[2]]
        befores = [before] if before is not None else [[], *there]
        return min((stamped(said, one, now) for one in befores), key=lambda told: sum(one.at for one in told))

    def remove(self) -> None:
        for file in (self.file, self.file.with_name(self.file.name + ".new")):
            with contextlib.suppress(OSError):
                file.unlink()


def stamped(said: Sequence[str], before: Sequence[Decision], now: float) -> list[Decision]:
    """The newest are first: what follows the new ones is what was there."""
    known = [one.text for one in before]
    for new in range(len(said) + 1):
        kept = len(said) - new
        if list(said[new:]) == known[:kept]:
            return [*(Decision(now, text) for text in said[:new]), *before[:kept]]
    raise AssertionError("nothing follows at the latest")


def read(path: Path) -> dict[str, Any] | None:
    """None: there is none, or it is not one of ours."""
    try:
        found = json.loads(file_for(path).read_text())
    except (OSError, ValueError):
        return None
    whole = (
        isinstance(found, dict) and isinstance(found.get("tenants"), list) and {"pid", "policy"} <= set(found)
    )
    return found if whole else None
