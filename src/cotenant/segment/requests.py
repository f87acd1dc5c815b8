"""Requests to a tenant to change, and which tenant a PID means."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol, TypeVar

from cotenant.segment.layout import BadSegment
from cotenant.segment.library import seal_requests
from cotenant.segment.pids import Seen, seen, start_time
from cotenant.segment.wire import Asked, Slot

TAKEN_SECONDS = 2.0  # an idle tenant looks every half second
BETWEEN_LOOKS_SECONDS = 0.002


def wait_until_taken(slot: Callable[[], Slot]) -> None:
    """A tenant that takes requests clears them: what is written in that moment would be lost, a `resume` right behind a
    `pause`, say. A stopped tenant takes none; what comes then is added to what waits there."""
    deadline = time.monotonic() + TAKEN_SECONDS
    while any(name != "timeline" for name in asked_of(slot())) and time.monotonic() < deadline:
        time.sleep(BETWEEN_LOOKS_SECONDS)


def write_requests(slot: Slot, wanted: Mapping[str, int]) -> None:
    """The tenant takes them once the check word agrees with all of them."""
    for name, value in wanted.items():
        if name == "memory":
            slot.asked_memory = 1 + value
        elif name == "sms":
            slot.asked_sms = 1 + value
        elif name == "pause":
            slot.residence.asked_pause = 1 + value
        elif name == "timeline":
            slot.asked_timeline = 1 + value
        else:
            setattr(slot.asked, name, 1 + value)
    seal_requests(slot)


def asked_of(slot: Slot) -> Iterator[str]:
    for name, *_ in Asked._fields_:
        if getattr(slot.asked, name):
            yield name
    if slot.asked_memory:
        yield "memory"
    if slot.asked_sms:
        yield "sms"
    if slot.residence.asked_pause:
        yield "pause"
    if slot.asked_timeline:
        yield "timeline"


class SlotClaim:
    """Of a slot in writable memory."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self.seen: Seen = seen(slot.pid, slot.pid_namespace, slot.started)
        self.pid, self.is_here, self.started = self.seen.pid, self.seen.is_here, int(slot.started)
        self.uid = int(slot.uid) if self.seen.uid is None else self.seen.uid


class Claimant(Protocol):
    @property
    def pid(self) -> int: ...
    @property
    def uid(self) -> int: ...
    @property
    def started(self) -> int: ...
    @property
    def is_here(self) -> bool: ...


Claims = TypeVar("Claims", bound=Claimant)


def with_pid(pid: int, candidates: Iterable[Claims]) -> Claims | None:
    """Every tenant writes its own slot: of several that claim a process, the one that it belongs to. One in a
    container that cannot be seen from here claims none of our processes."""
    claims = [one for one in candidates if one.pid == pid]
    if len(claims) > 1:
        elsewhere = [one for one in claims if not one.is_here]
        claims = [one for one in claims if is_process(one)]
        if not claims and len(elsewhere) > 1:
            raise BadSegment(
                f"{len(elsewhere)} tenants in containers that cannot be seen from here have PID {pid}"
            )
        if len(claims) != 1:
            raise BadSegment(f"several tenants claim to be process {pid}")
    return claims[0] if claims else None


def is_process(claim: Claimant) -> bool:
    """Whether the process that this tenant claims to be is its user's, and began when it says."""
    if not claim.is_here:
        return False
    try:
        status = Path(f"/proc/{claim.pid}/status").read_text(errors="replace")
    except OSError:
        return False
    uids = next((line.split()[1:] for line in status.splitlines() if line.startswith("Uid:")), [])
    return start_time(claim.pid) == claim.started and str(claim.uid) in uids
