"""Reads the ring of intervals that a tenant writes (native/tenant/timeline.h).

The ring is a memfd of the tenant's, open through /proc/PID/fd as long as the process lives, and as long as we hold it.
A tenant writes its own slot and its own ring: a descriptor that is no ring is refused, and what makes no sense in a
ring is left out.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from cotenant import segment
from cotenant.errors import Problem

MAGIC = b"cotline\0"
VERSION = 2
HEADER = struct.Struct("<8sIIQIIQQ")
ENTRY = struct.Struct("<QQQQQ")
ENTRIES_AT = 64
LARGEST_BYTES = 64 << 20
NO_GPU = 255
# What the descriptor names may be a pipe or a terminal.
CAREFULLY = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK


class Event(IntEnum):
    """As native/tenant/timeline.h has them."""

    burst = 1
    gate = 2
    turn = 3
    launch_wait = 4
    gpu_wait = 5
    space_wait = 6
    slice = 7
    copy = 8
    evicting = 9
    evicted = 10
    restoring = 11


class Closed(IntEnum):
    """Why a gate was closed."""

    by_higher_class = 1
    by_equal = 2
    by_policy = 3
    over_rate = 4
    by_copying = 5


@dataclass(frozen=True)
class Interval:
    event: Event
    begin_ns: int
    end_ns: int
    gpu: int | None
    value: int
    why: int
    thread: int
    lane: int = 0  # of the tenant's process; 0: none


@dataclass(frozen=True)
class Noted:
    intervals: list[Interval]
    dropped: int  # older ones, which newer ones have overwritten


def entries_in(memory: bytes) -> Iterator[tuple[int, int, int, int, int]]:
    end = ENTRIES_AT + (len(memory) - ENTRIES_AT) // ENTRY.size * ENTRY.size
    return ENTRY.iter_unpack(memory[ENTRIES_AT:end])


class Ring:
    """Held open: it can be read when the tenant has ended, too."""

    def __init__(self, tenant: segment.Tenant) -> None:
        """Raises Problem."""
        self.tenant = tenant
        named = f"{tenant.job} ({tenant.pid})"
        if not segment.is_process(tenant):
            raise Problem(f"{named} has ended, or runs in another PID namespace")
        try:
            self.file = os.open(f"/proc/{tenant.pid}/fd/{tenant.timeline - 1}", CAREFULLY)
        except PermissionError:
            raise Problem(
                f"{named} belongs to user {tenant.uid}: only that user and root can read it"
            ) from None
        except OSError as error:
            raise Problem(f"{named} has closed its timeline: {error.strerror}") from None
        about = os.fstat(self.file)
        is_file = stat.S_ISREG(about.st_mode) and about.st_size <= LARGEST_BYTES
        header = os.pread(self.file, HEADER.size, 0) if is_file else b""
        magic, version, entry_bytes, capacity, pid, _, started, _ = HEADER.unpack(
            header.ljust(HEADER.size, b"\0")
        )
        if magic != MAGIC or (pid, started) != (tenant.own_pid, tenant.started):
            self.close()
            raise self.is_closed()
        if (version, entry_bytes) != (VERSION, ENTRY.size):
            self.close()
            raise Problem(f"{named} runs another version of Cotenant", "start the job again")
        self.capacity = max(min(capacity, (about.st_size - ENTRIES_AT) // ENTRY.size), 0)

    def is_closed(self) -> Problem:
        named = f"{self.tenant.job} ({self.tenant.pid})"
        return Problem(f"{named} has closed its timeline, or another file in its place")

    def read(self) -> Noted:
        """Raises Problem."""
        memory, again = self.copy(), self.copy()
        count = HEADER.unpack_from(memory)[-1]
        found = []
        # An entry that was written meanwhile may be the half of one and the half of another.
        for entry, later in zip(entries_in(memory), entries_in(again), strict=True):
            sequence, begin, until, _, _ = entry
            if 0 < sequence <= count and begin <= until and entry == later:
                found.append(entry)
        found.sort()
        known = set(Event)
        intervals = [
            Interval(
                Event(what & 0xFF),
                begin,
                until,
                gpu if (gpu := what >> 8 & 0xFF) != NO_GPU else None,
                value,
                what >> 16 & 0xFF,
                what >> 32,
                what >> 24 & 0xFF,
            )
            for _, begin, until, value, what in found
            if what & 0xFF in known
        ]
        return Noted(intervals, max(count - self.capacity, 0))

    def copy(self) -> bytes:
        size = ENTRIES_AT + self.capacity * ENTRY.size
        memory = os.pread(self.file, size, 0)
        if len(memory) < size:  # the tenant has cut it off meanwhile
            raise self.is_closed()
        return memory

    def close(self) -> None:
        if self.file >= 0:
            os.close(self.file)
        self.file = -1
