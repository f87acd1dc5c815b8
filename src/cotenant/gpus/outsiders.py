"""Processes that use a GPU and are no tenants of the segment: NVML lists them. No class, limit or promise holds for
them; the hardware's time slices are all that parts them from the tenants.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cotenant import segment
from cotenant.launch import job_name
from cotenant.segment.pids import start_time

PROC = Path("/proc")
INTERPOSER = "/shim/libcuda.so.1"  # the end of its path, in a package, a build folder and a container
# It has the GPU for its clients, which NVML lists too. The kernel keeps so much of the name.
MPS_SERVER = "nvidia-cuda-mps-server"[:15]
MOST_NAMED = 4


@dataclass(frozen=True)
class Outsider:
    pid: int
    name: str  # as a job of this program would have it
    is_interposed: bool  # a tenant of another segment, or of none

    def __str__(self) -> str:
        return f"{self.name} ({self.pid})"


def among(processes: Sequence[int], tenants: Sequence[segment.Tenant]) -> tuple[Outsider, ...] | None:
    """Of the processes that NVML lists on a GPU. None where that is not known: NVML may number processes as another PID
    namespace does, and then lists no tenant by its number here."""
    known = {number for one in tenants if one.is_here for number in (one.pid, one.process)}
    if known.isdisjoint(processes):
        return None
    return tuple(one for pid in processes if pid not in known and (one := seen(pid)))


def seen(pid: int) -> Outsider | None:
    """None: it has ended, or cannot be seen from here; or it is the server of MPS."""
    started = start_time(pid)
    return None if started is None else looked_at(pid, started)


@functools.lru_cache(maxsize=1024)
def looked_at(pid: int, started: int) -> Outsider | None:
    """Once, though `top` asks every second: the list of what a process has mapped is long."""
    try:
        comm = (PROC / str(pid) / "comm").read_text(errors="replace").strip()
        words = (PROC / str(pid) / "cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return None
    if comm == MPS_SERVER:
        return None
    name = job_name.of_command(words) if words[0] else comm
    return Outsider(pid, name, is_interposed(pid) is True)


def is_interposed(pid: int) -> bool | None:
    """Whether it has loaded the interposer; None: it has ended, or may not be looked at."""
    try:
        with (PROC / str(pid) / "maps").open(encoding="utf-8", errors="replace") as lines:
            return any(line.rstrip().endswith(INTERPOSER) for line in lines)
    except OSError:
        return None


def in_words(found: Sequence[Outsider]) -> Iterator[str]:
    """Sentences without their subject, which is the GPU."""
    plain, elsewhere = ([one for one in found if one.is_interposed is other] for other in (False, True))
    if plain:
        yield f"is also used without Cotenant by {named(plain)}: no class holds there; `cotenant run` starts tenants"
    if elsewhere:
        yield f"is also used by {named(elsewhere)}, no tenant of this segment: classes hold within one segment only"


def named(found: Sequence[Outsider]) -> str:
    names = ", ".join(str(one) for one in found[:MOST_NAMED])
    more = len(found) - MOST_NAMED
    return f"{names} and {more} more" if more > 0 else names
