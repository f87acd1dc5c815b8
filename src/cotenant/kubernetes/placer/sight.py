"""All that the placer looks at every second, mirrored."""

from __future__ import annotations

import threading

from cotenant.kubernetes.cluster import Cluster, Object
from cotenant.kubernetes.mirror import Mirror
from cotenant.kubernetes.placer import gate

KINDS = (
    ("v1", "Pod", f"{gate.LABEL}=yes"),
    ("v1", "Node", ""),
    (gate.RESOURCE, "ResourceClaimTemplate", ""),
    (gate.RESOURCE, "ResourceClaim", ""),
    (gate.RESOURCE, "ResourceSlice", ""),
)


class Sight:
    def __init__(self, cluster: Cluster, until: threading.Event) -> None:
        self.changed = threading.Event()
        self._until = until
        self._mirrors = {
            kind: Mirror(cluster, version, kind, labels=labels, changed=self.changed)
            for version, kind, labels in KINDS
        }
        for kind, mirror in self._mirrors.items():
            threading.Thread(target=mirror.follow, args=(until,), daemon=True, name=f"watch-{kind}").start()

    def all_of(self, version: str, kind: str) -> list[Object]:
        """Waits until all are known."""
        mirror = self._mirrors[kind]
        while not mirror.is_complete.wait(1):
            if self._until.is_set():
                return []
        return mirror.all()
