"""The GPUs that the nodes' ResourceSlices offer, and the jobs that have claims on them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cotenant.classes import TenantClass
from cotenant.cluster.placement.fleet import Job
from cotenant.errors import Problem
from cotenant.kubernetes import names, quantities
from cotenant.kubernetes.claims import FROM_CLASS, opaque
from cotenant.kubernetes.parameters import parse, parse_class
from cotenant.kubernetes.placer import gate
from cotenant.units import thousandths

Amounts = dict[str, int]  # by capacity
Place = tuple[str, str]  # pool, which has the node's name, and device


@dataclass
class OfferedGpu:
    node: str
    device: str
    uuid: str
    whole: Amounts
    is_open: bool  # nothing taints it
    free: Amounts = field(default_factory=dict)
    jobs: list[Job] = field(default_factory=list)

    def take(self, job: Job, amounts: Mapping[str, int]) -> None:
        self.jobs.append(job)
        for capacity, amount in amounts.items():
            self.free[capacity] = self.free.get(capacity, 0) - amount


def offered(slices: Iterable[Mapping[str, Any]], claims: Iterable[Mapping[str, Any]]) -> list[OfferedGpu]:
    """In the order of nodes and devices, with what claims have taken: the scheduler's, and those that it has still
    to allocate and the placer has chosen a GPU for."""
    gpus = {(gpu.node, gpu.device): gpu for gpu in in_slices(slices)}
    for claim in claims:
        for place, amounts in taken_by(claim):
            if place in gpus:
                gpus[place].take(job_of(claim), amounts)
    return list(gpus.values())


def in_slices(slices: Iterable[Mapping[str, Any]]) -> list[OfferedGpu]:
    newest: dict[str, int] = {}
    ours = [one["spec"] for one in slices if one["spec"]["driver"] == names.DRIVER]
    for spec in ours:
        pool = spec["pool"]
        newest[pool["name"]] = max(pool["generation"], newest.get(pool["name"], 0))
    found = []
    for spec in sorted(ours, key=lambda spec: str(spec["pool"]["name"])):
        if spec["pool"]["generation"] != newest[spec["pool"]["name"]] or not spec.get("nodeName"):
            continue
        for device in spec.get("devices") or ():
            whole = {
                name: quantities.whole(capacity["value"])
                for name, capacity in (device.get("capacity") or {}).items()
            }
            uuid = (device.get("attributes") or {}).get("uuid", {}).get("string", "")
            is_open = not device.get("taints")
            found.append(OfferedGpu(spec["pool"]["name"], device["name"], uuid, whole, is_open, dict(whole)))
    return found


def taken_by(claim: Mapping[str, Any]) -> list[tuple[Place, Amounts]]:
    allocation = (claim.get("status") or {}).get("allocation")
    if allocation:
        return [
            ((result["pool"], result["device"]), amounts_of(result.get("consumedCapacity") or {}))
            for result in (allocation.get("devices") or {}).get("results") or ()
            if result["driver"] == names.DRIVER
        ]
    place = gate.gpu_of(claim)
    requests = (claim["spec"].get("devices") or {}).get("requests") or []
    # Anybody may write the placer's annotation; the placer itself makes claims with one exact request only.
    if not place or len(requests) != 1 or "exactly" not in requests[0]:
        return []
    return [(place, requested(requests[0]["exactly"]))]


def requested(request: Mapping[str, Any]) -> Amounts:
    """Of one device. A request without memory wants all of it, and is not counted here: it has no number."""
    capacity = request.get("capacity") or {}
    return amounts_of(capacity.get("requests") or {}) | {names.TENANTS: 1}


def amounts_of(capacities: Mapping[str, Any]) -> Amounts:
    return {name.rpartition("/")[2]: quantities.whole(amount) for name, amount in capacities.items()}


def job_of(claim: Mapping[str, Any]) -> Job:
    """As interference sees it; room is counted in the claims' own amounts."""
    metadata = claim["metadata"]
    labels = metadata.get("labels") or {}
    return Job(
        id=metadata["uid"] if "uid" in metadata else f"{metadata['namespace']}/{metadata['name']}",
        kind=labels.get(names.WORKLOAD_LABEL, ""),
        tenant_class=class_of(claim),
        share=0.0,
        slowdown=promise_in(claim["spec"]["devices"].get("config") or ()),
        **gate.words_of(claim),
    )


def class_of(claim: Mapping[str, Any]) -> TenantClass:
    """As the DeviceClass says it; an administrator's own DeviceClass says it in the allocation only."""
    for request in claim["spec"]["devices"].get("requests") or ():
        word = (request.get("exactly") or {}).get("deviceClassName", "")
        if word in names.DEVICE_CLASSES:
            return TenantClass[word.partition(".")[0]]
    allocation = (claim.get("status") or {}).get("allocation") or {}
    config = (allocation.get("devices") or {}).get("config") or ()
    requests = [one["request"] for one in (allocation.get("devices") or {}).get("results") or ()]
    for said in opaque(config, FROM_CLASS, requests):
        try:
            return TenantClass[parse_class(said)]
        except Problem:
            continue
    return TenantClass.standard


def promise_in(config: Iterable[Mapping[str, Any]]) -> float | None:
    """The slowdown that a claim's parameters promise, as a part: 0.05. A wrong parameter is the agent's to refuse."""
    for entry in config:
        said = entry.get("opaque") or {}
        if said.get("driver") != names.DRIVER:
            continue
        try:
            promise = parse(said.get("parameters") or {}).promise
        except Problem:
            continue
        if promise:
            return (thousandths(promise) or 0) / 1000
    return None
