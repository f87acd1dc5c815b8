"""Whether a node takes a pod: selectors, required affinity, taints. Pure.

The placer asks so that it does not choose a GPU where the scheduler cannot put the pod. What only the scheduler knows
(CPUs, volumes, other pods) it finds out itself, and the placer lets go of the GPU then.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def constraints_of(pod: Mapping[str, Any]) -> str:
    """The same for pods that the same nodes take."""
    spec = pod["spec"]
    required = required_terms(spec)
    return json.dumps([spec.get("nodeSelector"), required, spec.get("tolerations")], sort_keys=True)


def takes(node: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    spec, labels = pod["spec"], node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    terms = required_terms(spec)
    if terms is not None and not any(matches(term, node["metadata"]["name"], labels) for term in terms):
        return False
    taints = list(node["spec"].get("taints") or ()) if node.get("spec") else []
    if (node.get("spec") or {}).get("unschedulable"):
        taints.append(UNSCHEDULABLE)
    return all(
        taint["effect"] == "PreferNoSchedule"
        or any(tolerates(toleration, taint) for toleration in spec.get("tolerations") or ())
        for taint in taints
    )


def required_terms(spec: Mapping[str, Any]) -> list[Any] | None:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return None if required is None else list(required["nodeSelectorTerms"])


def matches(term: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> bool:
    """All of its requirements; a term without any matches no node."""
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    return all(meets(one, labels) for one in expressions) and all(
        meets(one, {"metadata.name": name}) for one in fields
    )


def meets(requirement: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value, values = labels.get(requirement["key"]), requirement.get("values") or []
    match requirement["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            try:
                there, wanted = int(value or ""), int(values[0])
            except (ValueError, IndexError):
                return False
            return there > wanted if operator == "Gt" else there < wanted
    return False


def tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if not toleration.get("key"):
        return toleration.get("operator") == "Exists"
    if toleration["key"] != taint["key"]:
        return False
    return toleration.get("operator") == "Exists" or (toleration.get("value") or "") == (
        taint.get("value") or ""
    )
