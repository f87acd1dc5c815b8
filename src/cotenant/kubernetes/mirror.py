"""Objects of the cluster as they are now, kept up to date by watching them."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from cotenant.errors import Failing, Problem
from cotenant.kubernetes.cluster import ALL, Cluster, Object

AGAIN_SECONDS = 2.0  # until an API server that was away is asked again
SHORTEST_WATCH_SECONDS = 0.2


class Mirror:
    """All objects of a kind that the selectors name. While the API server is away, they are as it last said."""

    def __init__(
        self,
        cluster: Cluster,
        version: str,
        kind: str,
        fields: str = "",
        labels: str = "",
        changed: threading.Event | None = None,
    ) -> None:
        """`changed` is set at each change; several mirrors may have one."""
        self.kind = kind
        self.changed = changed or threading.Event()
        self.is_complete = threading.Event()  # all are known
        self._cluster, self._version = cluster, version
        self._selectors = (fields, labels)
        self._by_uid: dict[str, Object] = {}
        self._lock = threading.Lock()

    def follow(self, until: threading.Event) -> None:
        """Until told to end."""
        failing = Failing()
        while not until.is_set():
            try:
                self.hear(until)
                failing.is_over()
                until.wait(SHORTEST_WATCH_SECONDS)
            except Problem as problem:
                failing.narrate(f"watching {self.kind}: {problem.message}")
                until.wait(AGAIN_SECONDS)

    def hear(self, until: threading.Event) -> None:
        """What the API server says, until the connection ends. Raises Problem."""
        fields, labels = self._selectors
        for change, found in self._cluster.follow(self._version, self.kind, fields, labels):
            self.take(change, found)
            if until.is_set():
                return

    def take(self, change: str, found: Sequence[Object]) -> None:
        by_uid = {one["metadata"]["uid"]: one for one in found}
        with self._lock:
            if change == ALL:
                self._by_uid = by_uid
            elif change == "DELETED":
                for uid in by_uid:
                    self._by_uid.pop(uid, None)
            elif change in ("ADDED", "MODIFIED"):
                self._by_uid |= by_uid
        self.is_complete.set()
        self.changed.set()

    def all(self) -> list[Object]:
        with self._lock:
            return list(self._by_uid.values())
