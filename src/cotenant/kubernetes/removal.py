"""Taking an installation away again: what was installed, and what agents and webhook made since, by its labels."""

from __future__ import annotations

from collections.abc import Iterator

from cotenant.kubernetes import manifests, names
from cotenant.kubernetes.cluster import Cluster
from cotenant.kubernetes.placer.release import release_all

RESOURCE = "resource.k8s.io/v1"
MADE_LATER = (
    (RESOURCE, "ResourceSlice"),
    (RESOURCE, "ResourceClaimTemplate"),
    ("v1", "Event"),
)


def users(cluster: Cluster) -> list[str]:
    """The pods that have claims on our devices, which only an agent can take back from kubelet."""
    found = set()
    for claim in cluster.all_of(RESOURCE, "ResourceClaim"):
        status = claim.get("status") or {}
        results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
        if any(result["driver"] == names.DRIVER for result in results):
            pods = (user["name"] for user in status.get("reservedFor") or () if user["resource"] == "pods")
            found |= {f"{claim['metadata']['namespace']}/{pod}" for pod in pods}
    return sorted(found)


def remove(cluster: Cluster, namespace: str) -> Iterator[tuple[str, str]]:
    """Yields the kind and name of each object that it has removed. The webhook goes first: no pod shall wait for it."""
    installed = manifests.everything(manifests.Settings(namespace=namespace, placer="any"))
    *others, webhook = installed
    for one in (webhook, *reversed(others)):
        metadata = one["metadata"]
        if cluster.delete(one["apiVersion"], one["kind"], metadata["name"], metadata.get("namespace", "")):
            yield one["kind"], metadata["name"]
        if one is webhook:
            release_all(cluster)  # pods that wait for the placer; no new one does
    labels = ",".join(f"{key}={value}" for key, value in names.LABELS.items())
    for version, kind in MADE_LATER:
        for where, name in cluster.names_of(version, kind, labels):
            if cluster.delete(version, kind, name, where):
                yield kind, name
