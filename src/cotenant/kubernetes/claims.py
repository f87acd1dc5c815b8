"""An allocated ResourceClaim as the terms of a tenant: what it was given on this node, and under which conditions.

All processes of all containers that use the claim are one run: its run_id is the claim's UID.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cotenant import classes, units
from cotenant.errors import Problem
from cotenant.kubernetes import names, parameters, quantities
from cotenant.kubernetes.parameters import Parameters

FROM_CLASS, FROM_CLAIM = "FromClass", "FromClaim"


@dataclass(frozen=True)
class Given:
    """One allocated device of a claim."""

    request: str
    pool: str
    device: str
    share_id: str = ""
    memory: int = 0
    overflow: int = 0
    share: int = 0


@dataclass(frozen=True)
class Terms:
    """Of one claim on one node."""

    uid: str
    namespace: str
    name: str
    tenant_class: str
    devices: tuple[Given, ...]
    parameters: Parameters
    pods: tuple[str, ...] = ()

    @property
    def memory_limit(self) -> int:
        """What its processes together may allocate on each GPU; all that is beyond `memory` has to be movable."""
        return self.devices[0].memory + self.devices[0].overflow

    @property
    def may_overflow(self) -> bool:
        return any(given.overflow for given in self.devices)

    @property
    def floor(self) -> str | None:
        """The reserved share is a floor: a lower class gets it whatever the higher classes do."""
        if self.parameters.floor or self.tenant_class == classes.TenantClass.production.name:
            return self.parameters.floor
        share = self.devices[0].share
        return f"{min(share, units.MOST_FLOOR // 10)}%" if share else None


def terms_of(claim: Mapping[str, Any], pool: str) -> Terms:
    """What the claim was given in this pool. Raises Problem with what its author has to change."""
    metadata = claim["metadata"]
    status = claim.get("status") or {}
    allocation = (status.get("allocation") or {}).get("devices") or {}
    results = [
        result
        for result in allocation.get("results") or ()
        if result["driver"] == names.DRIVER and result["pool"] == pool
    ]
    where = f"claim {metadata['namespace']}/{metadata['name']}"
    if not results:
        raise Problem(f"{where} has no device of {names.DRIVER} on {pool}", "wait until it is allocated")
    devices = tuple(map(given_by, results))
    requests = [given.request for given in devices]
    tenant_class = class_in(allocation.get("config") or (), requests, where)
    terms = Terms(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        tenant_class=tenant_class,
        devices=devices,
        parameters=parameters_in(allocation.get("config") or (), requests),
        pods=tuple(user["name"] for user in status.get("reservedFor") or () if user["resource"] == "pods"),
    )
    check(terms, where)
    return terms


def check(terms: Terms, where: str) -> None:
    first = terms.devices[0]
    for given in terms.devices:
        if replace(given, request="", pool="", device="", share_id="") != replace(
            first, request="", pool="", device="", share_id=""
        ):
            raise Problem(
                f"{where} asks for different capacities of its GPUs",
                "ask for the same of each, or make one claim for each container",
            )
    if terms.memory_limit < units.LEAST_LIMIT:
        raise Problem(f"{where} asks for no memory", "ask for memory or overflow of 1Mi at least")
    terms.parameters.check_for(terms.tenant_class)
    floor = units.thousandths(terms.parameters.floor) if terms.parameters.floor else None
    if floor and first.share and floor > first.share * 10:
        raise Problem(
            f"{where} has a floor of {terms.parameters.floor}, but reserves a share of {first.share}%",
            "raise the capacity share, or lower the floor",
        )


def given_by(result: Mapping[str, Any]) -> Given:
    taken = {
        name.rpartition("/")[2]: amount for name, amount in (result.get("consumedCapacity") or {}).items()
    }
    return Given(
        request=result["request"],
        pool=result["pool"],
        device=result["device"],
        share_id=result.get("shareID") or "",
        memory=quantities.whole(taken.get(names.MEMORY, 0)),
        overflow=quantities.whole(taken.get(names.OVERFLOW, 0)),
        share=quantities.whole(taken.get(names.SHARE, 0)),
    )


def opaque(
    config: Sequence[Mapping[str, Any]], source: str, requests: Sequence[str]
) -> list[Mapping[str, Any]]:
    """Our driver's entries of one source that are about any of these requests, or about all their alternatives."""
    named = {*requests, *(request.partition("/")[0] for request in requests)}
    return [
        entry["opaque"].get("parameters") or {}
        for entry in config
        if entry.get("source") == source
        and (entry.get("opaque") or {}).get("driver") == names.DRIVER
        and (not entry.get("requests") or set(entry["requests"]) & named)
    ]


def class_in(config: Sequence[Mapping[str, Any]], requests: Sequence[str], where: str) -> str:
    """Of several the lowest: a claim must not lend production to what was not asked for as production."""
    said = [parameters.parse_class(entry) for entry in opaque(config, FROM_CLASS, requests)]
    if not said:
        raise Problem(
            f"{where} has no class: its DeviceClass is none of Cotenant's",
            f"use one of {', '.join(names.DEVICE_CLASSES)}",
        )
    return max(said, key=classes.NAMES.index)


def parameters_in(config: Sequence[Mapping[str, Any]], requests: Sequence[str]) -> Parameters:
    found = Parameters()
    for entry in opaque(config, FROM_CLAIM, requests):
        found = parameters.parse(entry).over(found)
    return found
