"""Asks the tenants to note what they do, and holds their rings until the picture is drawn, also of those that end.

All tenants are asked that use a GPU of the chosen jobs, and those that come later too: the picture is of everybody.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from cotenant import segment
from cotenant.errors import Problem
from cotenant.segment import BadSegment, NotYours, Snapshot, Tenant
from cotenant.timeline.rings import Noted, Ring

RING_BYTES = 1 << 20
LOOK_SECONDS = 0.05
STOP_SECONDS = 2.0
MOST_RINGS = 512  # of the living and the dead; of more, the eldest dead ones are forgotten
MOST_LANES = 8 * MOST_RINGS

Key = tuple[int, int]  # PID, when it was started


def key_of(tenant: Tenant) -> Key:
    return tenant.pid, tenant.started


@dataclass
class Collection:
    path: Path
    ring_bytes: int = RING_BYTES
    rings: dict[Key, Ring] = field(default_factory=dict)
    awaited: set[Key] = field(default_factory=set)  # who was asked, and was not seen to note yet
    refused: dict[Key, str] = field(default_factory=dict)  # who could not be read, and why
    forgotten: int = 0
    began_ns: int = field(default_factory=segment.now_ns)
    gpus: dict[int, str] = field(default_factory=dict)
    meant_gpus: set[int] = field(default_factory=set)  # of the chosen jobs, also of those that have ended
    lanes: dict[tuple[int, int], Tenant] = field(default_factory=dict)  # by process and number

    def look(self, is_meant: Callable[[Tenant], bool]) -> Snapshot:
        """`is_meant`: the jobs whose GPUs count."""
        seen = self.seen()
        self.gpus |= seen.gpus
        self.meant_gpus |= {use.gpu for one in seen.tenants if is_meant(one) for use in one.uses}
        self.awaited &= {key_of(one) for one in seen.tenants}
        for tenant in seen.tenants:
            if is_meant(tenant) or any(use.gpu in self.meant_gpus for use in tenant.uses):
                self.take_in(tenant)
        return seen

    def seen(self) -> Snapshot:
        try:
            return segment.read(self.path)
        except FileNotFoundError:
            return Snapshot({}, (), 0)

    def take_in(self, tenant: Tenant) -> None:
        key = key_of(tenant)
        if tenant.lane:  # its process's ring has what it notes
            if len(self.lanes) < MOST_LANES or (tenant.process, tenant.lane) in self.lanes:
                self.lanes[tenant.process, tenant.lane] = tenant
            return
        if key in self.refused:
            return
        if key in self.rings:
            # Its class and memory are those of the last look.
            self.rings[key].tenant = tenant
        if not tenant.timeline:  # not yet, or another recording has just ended
            if "timeline" not in tenant.asked:
                self.awaited.add(key)
                self.ask(tenant, self.ring_bytes >> 10)
            return
        self.awaited.discard(key)
        if key in self.rings:
            return
        try:
            self.rings[key] = Ring(tenant)
        except Problem as problem:
            self.refused[key] = problem.message
        if len(self.rings) > MOST_RINGS:
            self.forget_eldest()

    def holds(self, tenant: Tenant) -> bool:
        """What it notes is in the picture; or cannot be, and the picture says so."""
        key = key_of(tenant)
        return bool(tenant.lane) or key in self.rings or key in self.refused

    def ask(self, tenant: Tenant, kib: int) -> None:
        try:
            segment.ask(self.path, tenant.pid, {"timeline": kib})
        except NotYours as error:
            self.refused[key_of(tenant)] = str(error)
        except (BadSegment, OSError):
            pass  # it ends just now, or the segment was replaced

    def forget_eldest(self) -> None:
        living = {key_of(one) for one in self.seen().tenants}
        eldest = next((key for key in self.rings if key not in living), next(iter(self.rings)))
        self.rings.pop(eldest).close()
        self.forgotten += 1

    def stop(self) -> None:
        """What lasts is noted as a tenant stops; one that does not answer in time is read as it is and stops later."""
        deadline = time.monotonic() + STOP_SECONDS
        told: set[Key] = set()
        while on := [one for one in self.seen().tenants if self.is_on(one)]:
            for tenant in on:
                # A tenant that was asked to note a moment ago may be about to take that.
                if key_of(tenant) not in told or "timeline" not in tenant.asked:
                    self.ask(tenant, 0)
                    told.add(key_of(tenant))
            self.awaited -= told
            if time.monotonic() >= deadline:
                return
            time.sleep(LOOK_SECONDS)

    def is_on(self, tenant: Tenant) -> bool:
        """That it notes, or soon will, for this recording or for another one of this user's, which has ended."""
        key = key_of(tenant)
        is_own = tenant.uid == os.geteuid() and tenant.is_here
        if tenant.lane or not (is_own or key in self.rings or key in self.awaited):
            return False
        return bool(tenant.timeline) or "timeline" in tenant.asked or key in self.awaited

    def read(self) -> list[tuple[Tenant, Noted]]:
        """What each tenant noted, the lanes of a process apart from it."""
        found: list[tuple[Tenant, Noted]] = []
        for key, ring in self.rings.items():
            try:
                found += self.of_process(ring.tenant, ring.read())
            except Problem as problem:
                self.refused[key] = problem.message
        return found

    def of_process(self, own: Tenant, noted: Noted) -> Iterator[tuple[Tenant, Noted]]:
        for lane in sorted({0, *(one.lane for one in noted.intervals)}):
            intervals = [one for one in noted.intervals if one.lane == lane]
            known = self.lanes.get((own.process, lane)) or replace(own, job=f"{own.job}/lane {lane}")
            yield (known if lane else own), Noted(intervals, 0 if lane else noted.dropped)

    def close(self) -> None:
        for ring in self.rings.values():
            with contextlib.suppress(OSError):
                ring.close()
