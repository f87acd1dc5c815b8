"""Which pods are about to be evicted, and why.

Whoever evicts a pod (the scheduler for one of a higher PriorityClass, the eviction API for a drain, kubelet, a taint)
sets its condition DisruptionTarget before it deletes it. Then the agent pauses the pod's opportunistic tenants: their
memory goes to the host while the pod ends, and others have the GPU at once. A pod that saves its work from the GPU when
it is told to end says `cotenant.dev/on-eviction: run`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cotenant.kubernetes import names
from cotenant.kubernetes.claims import Terms
from cotenant.kubernetes.node.preparing import claims_of_containers

# A GPU with a fault moves no memory.
NOT_FOR_US = ("DeletionByDeviceTaintManager",)


def reason(pod: Mapping[str, Any]) -> str:
    """Empty: it is not about to be evicted, or wants to run until it is."""
    annotations = pod["metadata"].get("annotations") or {}
    if annotations.get(names.ON_EVICTION_ANNOTATION) == names.RUN_ON_EVICTION:
        return ""
    for one in (pod.get("status") or {}).get("conditions") or ():
        if one["type"] == "DisruptionTarget" and one["status"] == "True":
            why = one.get("reason") or "no reason given"
            return "" if why in NOT_FOR_US else f"the pod is to be evicted ({why})"
    return ""


def claims_of(pod: Mapping[str, Any], claims: Mapping[tuple[str, str], Terms]) -> list[Terms]:
    """Those claims that a pod's containers use."""
    namespace = pod["metadata"]["namespace"]
    used = {name for some in claims_of_containers(pod).values() for name in some}
    return [claims[namespace, name] for name in sorted(used) if (namespace, name) in claims]
