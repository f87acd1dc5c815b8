"""One decision: all pods that wait behind the gate, over all GPUs that are offered, by a placement policy. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cotenant.cluster.placement.fleet import Fleet, Job, Mask
from cotenant.cluster.placement.interface import Placement
from cotenant.cluster.placement.interference import Interference
from cotenant.kubernetes import names, quantities
from cotenant.kubernetes.placer import gate, nodes
from cotenant.kubernetes.placer.offers import OfferedGpu, offered
from cotenant.kubernetes.placer.wanted import Wanted, wanted

Object = dict[str, Any]
Named = Mapping[tuple[str, str], Object]  # by namespace and name


@dataclass(frozen=True)
class Placed:
    pod: Object
    gpu: OfferedGpu | None  # None: the scheduler chooses
    why: str = ""


@dataclass
class Round:
    placed: list[Placed] = field(default_factory=list)
    waiting: list[tuple[Object, str]] = field(default_factory=list)  # and why


def decide(
    pods: Iterable[Object],
    templates: Named,
    claims: Named,
    slices: Iterable[Object],
    cluster_nodes: Iterable[Object],
    policy: Placement,
    interference: Interference,
) -> Round:
    found = Round()
    gpus = offered(slices, claims.values())
    places = {(gpu.node, gpu.device): gpu for gpu in gpus}
    sizes = {gpu.whole.get(names.MEMORY, 0) for gpu in gpus}
    size = sizes.pop() if len(sizes) == 1 else None
    queue: list[Wanted] = []
    for pod in pods:
        by_claim = gate.templates_of(pod)
        namespace = pod["metadata"]["namespace"]
        made = [claim for name in by_claim if (claim := claims.get((namespace, name)))]
        if made and len(made) == len(by_claim):
            # The placer was refused, or killed, before it opened the gate: the claim has taken its place already.
            place = gate.gpu_of(made[0])
            found.placed.append(Placed(pod, places.get(place) if place else None, "its claim is there"))
            continue
        named = list(by_claim.values())
        missing = [name for name in named if (namespace, name) not in templates]
        if missing:
            found.waiting.append((pod, f"there is no ResourceClaimTemplate {missing[0]}"))
            continue
        given: list[Mapping[str, Any]] = [templates[namespace, name] for name in named]
        one = wanted(pod, given, size) if gpus else None
        if one:
            queue.append(one)
        elif gpus:
            found.placed.append(Placed(pod, None, "it asks for more than amounts of one GPU"))
        else:
            found.waiting.append((pod, "no node offers a GPU"))
    queue.sort(key=lambda one: (one.job.tenant_class, one.pod["metadata"]["creationTimestamp"], one.name))
    fleet = fleet_of(gpus, queue, {node["metadata"]["name"]: node for node in cluster_nodes})
    decision = policy.decide([one.job for one in queue], fleet, interference)
    for one in queue:
        if numbers := decision.placed.get(one.job.id):
            fleet.add(one.job, numbers)
            found.placed.append(Placed(one.pod, gpus[numbers[0]]))
    late = [one for one in queue if one.job.id not in decision.placed]
    found.waiting += [(one.pod, reason(one, fleet, policy)) for one in late]
    return found


def fleet_of(gpus: Sequence[OfferedGpu], queue: Iterable[Wanted], by_name: Mapping[str, Object]) -> Fleet:
    """With the room that claims leave: the scheduler counts in them, whatever class they have."""
    fleet = Fleet([gpu.whole.get(names.MEMORY, 0) for gpu in gpus])
    residents: dict[str, tuple[Job, list[int]]] = {}
    for number, gpu in enumerate(gpus):
        for job in gpu.jobs:
            residents.setdefault(job.id, (job, []))[1].append(number)
    for job, places in residents.values():
        fleet.add(job, places)
    # Claims that nobody has allocated may say more than any GPU has, and more than a number here can.
    fleet.free_bytes = np.array([max(0, gpu.free.get(names.MEMORY, 0)) for gpu in gpus], dtype=np.int64)
    fleet.free_shares[:] = [gpu.free.get(names.SHARE, 0) / 100 for gpu in gpus]
    for one in queue:
        if one.job.where not in fleet.where:
            fleet.where[one.job.where] = takers(one, gpus, by_name)
    return fleet


def takers(one: Wanted, gpus: Sequence[OfferedGpu], by_name: Mapping[str, Object]) -> Mask:
    """The GPUs that have enough of everything but memory, on nodes that take the pod."""
    taking = {name for name, node in by_name.items() if nodes.takes(node, one.pod)}
    others = [(name, amount) for name, amount in one.amounts.items() if name != names.MEMORY]
    return np.array(
        [
            gpu.is_open
            and bool(gpu.uuid)
            and gpu.node in taking
            and all(gpu.free.get(name, 0) >= amount for name, amount in others)
            for gpu in gpus
        ],
        dtype=bool,
    )


def reason(one: Wanted, fleet: Fleet, policy: Placement) -> str:
    where = fleet.where[one.job.where]
    if not where.any():
        return "no GPU on a node that takes the pod has enough overflow, share or tenants left"
    most = int(fleet.free_bytes[where].max())
    if most < one.job.memory_bytes:
        asked = quantities.of_bytes(one.job.memory_bytes)
        return f"no GPU has {asked} of memory left: the most is {quantities.of_bytes(most)}"
    return f"the placement policy {policy.name} finds no GPU for it now"
