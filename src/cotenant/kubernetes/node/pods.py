"""The pods of this node, as the API server tells of them, and which of them a process is in.

Which process is whose is the kernel's word: the path of a process's cgroup has the id of its container, and a pod's
status has the ids of its containers. What a tenant writes into its own slot is not asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cotenant import segment
from cotenant.kubernetes.claims import Terms
from cotenant.kubernetes.cluster import Cluster
from cotenant.kubernetes.mirror import Mirror
from cotenant.kubernetes.node.preparing import claims_of_containers
from cotenant.metrics import containers

Process = tuple[int, int]  # PID, when it was started


@dataclass(frozen=True)
class Place:
    """A container of a pod."""

    pod: Mapping[str, Any]
    container: str

    @property
    def namespace(self) -> str:
        return str(self.pod["metadata"]["namespace"])

    @property
    def name(self) -> str:
        return str(self.pod["metadata"]["name"])

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.pod["metadata"].get("annotations") or {}

    def labels(self) -> dict[str, str]:
        """As DCGM's exporter calls them."""
        return {"namespace": self.namespace, "pod": self.name, "container": self.container}


@dataclass(frozen=True)
class Resident:
    """A tenant in a container that has a claim of ours."""

    tenant: segment.Tenant
    place: Place
    terms: Terms

    @property
    def process(self) -> Process:
        return (self.tenant.pid, self.tenant.started)


class Pods(Mirror):
    def __init__(self, cluster: Cluster, node: str) -> None:
        super().__init__(cluster, "v1", "Pod", fields=f"spec.nodeName={node}")

    def places(self) -> dict[str, Place]:
        """By the container's id; of one that has been restarted also by the one before."""
        found: dict[str, Place] = {}
        for pod in self.all():
            status = pod.get("status") or {}
            for kind in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
                for one in status.get(kind) or ():
                    for container_id in container_ids(one):
                        found[container_id] = Place(pod, one["name"])
        return found


def container_ids(status: Mapping[str, Any]) -> list[str]:
    """Of `containerd://3f6c...`."""
    last = ((status.get("lastState") or {}).get("terminated") or {}).get("containerID")
    return [said.rpartition("/")[2] for said in (last, status.get("containerID")) if said]


class Finder:
    """Which container the process of a tenant is in. A process stays in its container: each is looked at once."""

    def __init__(self, ids_of: Callable[[segment.Tenant], tuple[str, ...]] | None = None) -> None:
        self._ids: dict[Process, tuple[str, ...]] = {}
        self._ids_of = ids_of or container_ids_of

    def residents(
        self, seen: segment.Snapshot, places: Mapping[str, Place], claims: Sequence[Terms]
    ) -> list[Resident]:
        known, self._ids = self._ids, {}
        by_name = {(terms.namespace, terms.name): terms for terms in claims}
        found = []
        for tenant in seen.tenants:
            process = (tenant.pid, tenant.started)
            ids = known.get(process) or self._ids_of(tenant)
            self._ids[process] = ids
            place = next((places[one] for one in ids if one in places), None)
            terms = place and terms_of(place, by_name)
            if place and terms:
                found.append(Resident(tenant, place, terms))
        return found


def container_ids_of(tenant: segment.Tenant) -> tuple[str, ...]:
    """Of the container, and of those around it."""
    if not segment.is_process(tenant):
        return ()
    return containers.ids_in_cgroup(containers.text_of(tenant.pid, "cgroup"))


def terms_of(place: Place, claims: Mapping[tuple[str, str], Terms]) -> Terms | None:
    """Of the claim that the container has; it has one at most."""
    names = claims_of_containers(place.pod).get(place.container, set())
    return next((claims[place.namespace, name] for name in names if (place.namespace, name) in claims), None)
