"""What idle tenants cost: the CPU time of all of them together, as a share of one core."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tenants import crowd

from cotenant import segment

MOST = 0.01
SETTLE_SECONDS = 3.0  # after its last work a tenant is awake for a while


@dataclass(frozen=True)
class Figure:
    kind: str  # of the segment
    tenants: int
    share: float

    @property
    def is_missed(self) -> bool:
        return self.tenants <= 64 and self.share > MOST


def measure(counts: Sequence[int], seconds: float) -> list[Figure]:
    found = []
    print(f"{'SEGMENT':<7} {'TENANTS':>7} {'OF A CORE':>10}")
    for kind in ("file", "folder"):
        for count in counts:
            figure = Figure(kind, count, share_of_a_core(kind, count, seconds))
            found.append(figure)
            print(f"{kind:<7} {count:>7} {figure.share:>10.2%}", flush=True)
    return found


def share_of_a_core(kind: str, count: int, seconds: float) -> float:
    with crowd(kind, count) as (env, tenants):
        time.sleep(SETTLE_SECONDS)
        shown = len(segment.read(Path(env["COTENANT_SEGMENT"])).tenants)
        if shown != count:
            sys.exit(f"{shown} of {count} tenants are in the segment")
        began, before = time.monotonic(), cpu_seconds(tenants)
        time.sleep(seconds)
        return (cpu_seconds(tenants) - before) / (time.monotonic() - began)


def cpu_seconds(tenants: Sequence[subprocess.Popen[str]]) -> float:
    """Of all their threads, by the scheduler's own count: the ticks of /proc/PID/stat are too coarse."""
    return (
        sum(
            int((thread / "schedstat").read_text().split()[0])
            for tenant in tenants
            for thread in Path(f"/proc/{tenant.pid}/task").iterdir()
        )
        / 1e9
    )
