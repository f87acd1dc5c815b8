"""What the daemon writes down: it looks at the whole segment once in LOOK_SECONDS, and whenever a tenant comes or goes,
but takes no more than 2 % of a core for it.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from cotenant import segment
from cotenant.errors import Problem
from cotenant.events import log
from cotenant.events.kinds import Event, Kind
from cotenant.events.observer import Observer
from cotenant.tenants import jobs

LOOK_SECONDS = 1.0
PAUSE_FOR_COST = 50


class Watching:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.observer = Observer(known(path), time.time(), segment.now_ns())
        self.verdicts = self.observer.verdicts.now()
        self.troubles = set(troubles())  # of MPS daemons, that were told
        self.policy = self.problem = self.settings_problem = ""
        self.next_look = 0.0

    def ended(self, cause: str) -> None:
        self.write([self.own(Kind.daemon_ended, cause)])

    def decides(self, policy: str, problem: str, settings_problem: str) -> None:
        """What the daemon does now."""
        events = []
        if not self.policy:
            events.append(self.own(Kind.daemon_started, f"policy {policy}"))
        if problem and problem != self.problem:
            events.append(self.own(Kind.policy_failed, problem))
        elif self.policy and policy != self.policy:
            events.append(self.own(Kind.policy_changed, f"from {self.policy} to {policy}"))
        if settings_problem and settings_problem != self.settings_problem:
            events.append(self.own(Kind.settings_wrong, settings_problem))
        self.policy, self.problem, self.settings_problem = policy, problem, settings_problem
        self.write(events)

    def look(self, is_news: bool) -> None:
        """`is_news`: a tenant came or went."""
        now = time.monotonic()
        if now < self.next_look and not is_news:
            return
        began = time.thread_time()
        with contextlib.suppress(OSError, segment.BadSegment):
            seen = segment.read(self.path)
            self.write(self.observer.look(seen, time.time(), segment.now_ns(), is_alive))
            self.verdicts = self.observer.verdicts.now()
            if any(one.mps_daemon for one in seen.tenants):
                self.look_at_mps()
        cost = time.thread_time() - began
        self.next_look = now + max(LOOK_SECONDS, PAUSE_FOR_COST * cost)

    def look_at_mps(self) -> None:
        """What the keeper of the user's own MPS daemons has noted (cotenant.mps.keeper)."""
        found = troubles()
        self.write([self.own(Kind.mps_replaced, found[one]) for one in found if one not in self.troubles])
        self.troubles = set(found)

    def own(self, kind: Kind, cause: str) -> Event:
        return Event(time.time(), kind, cause, pid=os.getpid(), uid=os.geteuid())

    def write(self, events: list[Event]) -> None:
        # A full disk, or a file that somebody has planted, is no reason to stop looking after the tenants.
        with contextlib.suppress(OSError, Problem):
            log.append(self.path, events)


def known(path: Path) -> list[Event]:
    try:
        return log.read(path)
    except Problem:
        return []


def troubles() -> dict[Path, str]:
    """Of each MPS daemon that gets no new jobs: why."""
    from cotenant.mps.place import Place, find_folder

    place = Place(find_folder(os.environ))
    with contextlib.suppress(OSError):
        return {one.folder: one.trouble for one in place.generations() if one.trouble}
    return {}


def is_alive(pid: int, started: int) -> bool:
    """Nobody may have asked yet how it ended, and its number may have become another's."""
    fields = jobs.stat_of(pid)
    return bool(fields) and fields[0] not in "ZX" and fields[19] == str(started)
