"""What happened, as Kubernetes' events on pods and claims: `kubectl describe` shows them.

An event that comes again is the same object with a higher count. A thread of its own writes them: an API server that is
away or slow holds nothing up, and after MOST_WAITING the eldest are left out.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cotenant.errors import Failing, Problem
from cotenant.events.kinds import Kind
from cotenant.kubernetes import names
from cotenant.kubernetes.cluster import Cluster, Object

MOST_WAITING = 1000
MOST_KNOWN = 4096  # different events that are counted
BURST, REFILL_SECONDS = 30, 20.0  # of one pod or claim: so many at once, then one in so many seconds
LONGEST_MESSAGE, LONGEST_NAME = 1024, 200

NORMAL, WARNING = "Normal", "Warning"
# What the observer tells, as an event's reason and type; the others are not a pod's.
REASONS = {
    Kind.joined: ("Joined", NORMAL),
    Kind.left: ("Left", NORMAL),
    Kind.class_changed: ("ClassChanged", NORMAL),
    Kind.evicted: ("MemoryEvicted", NORMAL),
    Kind.restored: ("MemoryRestored", NORMAL),
    Kind.paused: ("Paused", NORMAL),
    Kind.resumed: ("Resumed", NORMAL),
    Kind.promise_broken: ("PromiseBroken", WARNING),
    Kind.promise_kept: ("PromiseKept", NORMAL),
    Kind.eviction_refused: ("MemoryEvictionRefused", WARNING),
    Kind.allocation_refused: ("AllocationRefused", WARNING),
    Kind.escaped: ("Escaped", WARNING),
    Kind.mps_failed: ("MpsFailed", WARNING),
}


@dataclass(frozen=True)
class About:
    """The object that an event is about."""

    version: str
    kind: str
    namespace: str
    name: str
    uid: str

    @staticmethod
    def of(made: Mapping[str, Any], version: str = "v1", kind: str = "Pod") -> About:
        metadata = made["metadata"]
        return About(version, kind, metadata["namespace"], metadata["name"], metadata["uid"])


Told = tuple[About, str, str, str]


class Story:
    def __init__(self, cluster: Cluster, node: str) -> None:
        self._cluster, self._node = cluster, node
        self._waiting: deque[Told] = deque(maxlen=MOST_WAITING)
        self._known: dict[str, tuple[int, str]] = {}  # how often, and when first
        self._left: dict[
            About, tuple[float, float]
        ] = {}  # events that may still be written, and when that was
        self._more = threading.Condition()

    def tell(self, about: About, reason: str, message: str, kind: str = NORMAL) -> None:
        with self._more:
            self._waiting.append((about, reason, message[:LONGEST_MESSAGE], kind))
            self._more.notify()

    def write(self, until: threading.Event) -> None:
        """Until told to end, and then what is still waiting."""
        failing = Failing()
        while True:
            with self._more:
                if not self._waiting and not until.is_set():
                    self._more.wait(1.0)
                if not self._waiting:
                    if until.is_set():
                        return
                    continue
                told = self._waiting.popleft()
            try:
                self.put(told, time.time())
                failing.is_over()
            except Problem as problem:
                # A namespace may be gone; an API server that is away comes back, and then there is other news.
                failing.narrate(f"events: {problem.message}")

    def put(self, told: Told, now: float) -> None:
        about, _, _, _ = told
        name = name_of(told)
        if not self._may(about, now):
            return
        count, first = self._known.pop(name, (0, stamp(now)))
        self._known[name] = (count + 1, first)
        while len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]
        self._cluster.apply(self.event(told, name, count + 1, first, stamp(now)))

    def _may(self, about: About, now: float) -> bool:
        left, at = self._left.pop(about, (float(BURST), now))
        left = min(BURST, left + max(0.0, now - at) / REFILL_SECONDS)
        self._left[about] = (left - 1 if left >= 1 else left, now)
        while len(self._left) > MOST_KNOWN:
            del self._left[next(iter(self._left))]
        return left >= 1

    def event(self, told: Told, name: str, count: int, first: str, last: str) -> Object:
        about, reason, message, kind = told
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": about.namespace, "labels": dict(names.LABELS)},
            "involvedObject": {
                "apiVersion": about.version,
                "kind": about.kind,
                "namespace": about.namespace,
                "name": about.name,
                "uid": about.uid,
            },
            "type": kind,
            "reason": reason,
            "message": message,
            "count": count,
            "firstTimestamp": first,
            "lastTimestamp": last,
            "source": {"component": names.DRIVER, "host": self._node},
            "reportingComponent": names.DRIVER,
            "reportingInstance": self._node,
        }


def name_of(told: Told) -> str:
    """The same for what comes again."""
    about, *words = told
    digest = hashlib.sha256("\0".join((about.uid, *words)).encode()).hexdigest()
    return f"{about.name[:LONGEST_NAME].rstrip('.-')}.{digest[:16]}"


def stamp(now: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
