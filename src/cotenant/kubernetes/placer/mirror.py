"""Objects of the cluster as they are now, kept up to date by watching: the placer looks at all of them every second."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from cotenant.errors import Problem, narrate
from cotenant.kubernetes.cluster import ALL, Cluster, Object

AGAIN_SECONDS = 2.0


@dataclass
class Kind:
    """What is mirrored: all objects of a kind that have the labels."""

    version: str
    kind: str
    labels: str = ""
    objects: dict[str, Object] = field(default_factory=dict)  # by UID
    is_complete: threading.Event = field(default_factory=threading.Event)


class Mirror:
    def __init__(self, cluster: Cluster, kinds: Sequence[Kind]) -> None:
        self._cluster = cluster
        self._kinds = {one.kind: one for one in kinds}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self.changed = threading.Event()
        for one in kinds:
            threading.Thread(target=self._follow, args=(one,), daemon=True, name=f"watch-{one.kind}").start()

    def all_of(self, version: str, kind: str) -> list[Object]:
        """Waits until all are known."""
        one = self._kinds[kind]
        while not one.is_complete.wait(1):
            if self._ended.is_set():
                return []
        with self._lock:
            return list(one.objects.values())

    def end(self) -> None:
        self._ended.set()

    def _follow(self, one: Kind) -> None:
        """Anything that goes wrong begins it anew; what was known before stays until then."""
        said = ""
        while not self._ended.is_set():
            try:
                for what, objects in self._cluster.follow(one.version, one.kind, labels=one.labels):
                    self._note(one, what, objects)
                said = ""
            except Problem as problem:
                if problem.message != said:
                    narrate(f"watching {one.kind}: {problem.message}")
                said = problem.message
                self._ended.wait(AGAIN_SECONDS)

    def _note(self, one: Kind, what: str, objects: list[Object]) -> None:
        by_uid = {made["metadata"]["uid"]: made for made in objects}
        with self._lock:
            if what == ALL:
                one.objects = by_uid
            elif what == "DELETED":
                for uid in by_uid:
                    one.objects.pop(uid, None)
            else:
                one.objects |= by_uid
        one.is_complete.set()
        self.changed.set()
