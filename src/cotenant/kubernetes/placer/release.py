"""Pods that wait for a placer that goes away."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cotenant.errors import Problem, narrate
from cotenant.kubernetes.cluster import Cluster
from cotenant.kubernetes.placer import gate

Object = dict[str, Any]
RESOURCE = gate.RESOURCE


def release_all(cluster: Cluster) -> int:
    """Without the placer nobody else would: the scheduler chooses. Returns how many pods still wait."""
    pods = [
        cluster.get("v1", "Pod", name, namespace)
        for namespace, name in cluster.names_of("v1", "Pod", f"{gate.LABEL}=yes")
    ]
    closed = [pod for pod in pods if pod and gate.is_closed(pod)]
    if not closed:
        return 0
    templates = by_name(cluster.all_of(RESOURCE, "ResourceClaimTemplate"))
    left = 0
    for pod in closed:
        try:
            release(cluster, pod, templates)
        except Problem as problem:  # such as a claim over its namespace's quota
            left += 1
            metadata = pod["metadata"]
            narrate(f"{metadata['namespace']}/{metadata['name']} still waits: {problem.message}")
    return left


def release(cluster: Cluster, pod: Object, templates: Mapping[tuple[str, str], Object]) -> None:
    namespace = pod["metadata"]["namespace"]
    for name, template in gate.templates_of(pod).items():
        if (namespace, template) in templates:
            cluster.create(gate.claim_for(pod, name, templates[namespace, template], None))
    cluster.patch("v1", "Pod", pod["metadata"]["name"], namespace, gate.opened(pod))


def by_name(objects: list[Object]) -> dict[tuple[str, str], Object]:
    return {(one["metadata"]["namespace"], one["metadata"]["name"]): one for one in objects}
