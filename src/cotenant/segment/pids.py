"""Which process of this PID namespace a tenant is. A tenant signs its slot with its PID, its start time and its PID
namespace: one in a container has another number here, and one in a container beside ours has none.
"""

from __future__ import annotations

import functools
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from cotenant.segment.wire import SLOTS

PROC = Path("/proc")
AGAIN_SECONDS = 1.0  # until a tenant that was not found is looked for again
MOST = 4 * SLOTS  # of several segments, too
T = TypeVar("T")


@dataclass(frozen=True)
class Seen:
    pid: int  # here; its own number where it cannot be seen from here
    is_here: bool
    uid: int | None  # None: as the slot says


_found: dict[tuple[int, int, int], int] = {}
_missed: dict[tuple[int, int, int], float] = {}


def own_namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def seen(pid: int, namespace: int, started: int) -> Seen:
    if namespace in (0, own_namespace()):
        return Seen(pid, True, None)
    signature = (pid, namespace, started)
    number = _found.get(signature)
    if number is None or not is_it(number, *signature):
        number = looked_for(signature)
    if number is None:
        return Seen(pid, False, None)
    return Seen(number, True, owner_of(number))


def looked_for(signature: tuple[int, int, int]) -> int | None:
    """All processes are looked at, so not too often."""
    now = time.monotonic()
    if now - _missed.get(signature, -AGAIN_SECONDS) < AGAIN_SECONDS:
        return None
    number = next(
        (int(entry) for entry in os.listdir(PROC) if entry.isdigit() and is_it(int(entry), *signature)), None
    )
    if number is None:
        _found.pop(signature, None)
        note(_missed, signature, now)
    else:
        _missed.pop(signature, None)
        note(_found, signature, number)
    return number


def note(known: dict[tuple[int, int, int], T], signature: tuple[int, int, int], what: T) -> None:
    """Nobody asks again for a tenant that has ended: what was noted longest ago goes."""
    known.pop(signature, None)
    known[signature] = what
    if len(known) > MOST:
        del known[next(iter(known))]


def is_it(number: int, pid: int, namespace: int, started: int) -> bool:
    """Whether the process `number` is `pid` in a namespace below ours, and is as old as the tenant."""
    try:
        lines = (PROC / str(number) / "status").read_text(errors="replace").splitlines()
    except OSError:  # with hidepid=1 also: it is another user's
        return False
    numbers = next((line.split()[1:] for line in lines if line.startswith("NSpid:")), [])
    if len(numbers) < 2 or numbers[-1] != str(pid) or start_time(number) != started:
        return False
    try:
        return os.stat(PROC / str(number) / "ns" / "pid").st_ino == namespace
    except PermissionError:
        return True  # another user's: its namespace is not ours to look at, its start time has to do
    except OSError:
        return False


def start_time(number: int) -> int | None:
    """In the kernel's ticks; None: there is no such process."""
    try:
        text = (PROC / str(number) / "stat").read_text(errors="replace")
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[19])


@functools.lru_cache(maxsize=1024)
def process_of(thread: int, started: int) -> int:
    """The process of a thread, which was started then; the thread itself where there is none."""
    try:
        lines = (PROC / str(thread) / "status").read_text(errors="replace").splitlines()
    except OSError:
        return thread
    groups = (line.split()[1] for line in lines if line.startswith("Tgid:"))
    return next((int(group) for group in groups if group.isdigit()), thread)


def owner_of(number: int) -> int | None:
    try:
        return (PROC / str(number)).stat().st_uid
    except OSError:
        return None
