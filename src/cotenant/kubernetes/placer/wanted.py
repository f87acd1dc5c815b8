"""What a gated pod wants, as a job for the placement policies; or that the scheduler alone can tell. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cotenant.classes import TenantClass
from cotenant.cluster.placement.fleet import Job
from cotenant.kubernetes import names
from cotenant.kubernetes.placer import gate, nodes
from cotenant.kubernetes.placer.offers import Amounts, promise_in, requested


@dataclass(frozen=True)
class Wanted:
    pod: dict[str, Any]
    job: Job
    amounts: Amounts

    @property
    def name(self) -> str:
        return f"{self.pod['metadata']['namespace']}/{self.pod['metadata']['name']}"


def wanted(pod: dict[str, Any], templates: list[Mapping[str, Any]], gpu_bytes: int | None) -> Wanted | None:
    """None: the pod has several claims, or asks for more than amounts of one GPU. `gpu_bytes` is what a GPU has where
    all have the same: a claim that says no amount wants all of it."""
    if len(templates) != 1:
        return None
    devices = templates[0]["spec"]["spec"].get("devices") or {}
    requests = devices.get("requests") or []
    if len(requests) != 1 or devices.get("constraints"):
        return None
    request = requests[0].get("exactly") or {}
    is_plain = request.keys() <= {"deviceClassName", "capacity", "count", "allocationMode"}
    if not is_plain or request.get("deviceClassName") not in names.DEVICE_CLASSES:
        return None
    if request.get("count", 1) != 1 or request.get("allocationMode", "ExactCount") != "ExactCount":
        return None
    amounts = requested(request)
    if not amounts.keys() <= set(names.CAPACITIES) or amounts.get(names.MEMORY, gpu_bytes) is None:
        return None
    amounts.setdefault(names.MEMORY, gpu_bytes or 0)
    return Wanted(pod, job(pod, request, amounts, devices), amounts)


def job(
    pod: Mapping[str, Any], request: Mapping[str, Any], amounts: Amounts, devices: Mapping[str, Any]
) -> Job:
    others = {name: amount for name, amount in amounts.items() if name != names.MEMORY}
    return Job(
        id=pod["metadata"]["uid"],
        kind=(pod["metadata"].get("labels") or {}).get(names.WORKLOAD_LABEL, ""),
        tenant_class=TenantClass[request["deviceClassName"].partition(".")[0]],
        share=amounts.get(names.SHARE, 0) / 100,
        memory_bytes=amounts[names.MEMORY],
        slowdown=promise_in(devices.get("config") or ()),
        where=json.dumps([nodes.constraints_of(pod), others], sort_keys=True),
        **gate.words_of(pod),
    )
