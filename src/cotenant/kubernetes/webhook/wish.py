"""What a pod wants of GPUs, whoever's words it used, and the ResourceClaimTemplate that says the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from cotenant.kubernetes import names, quantities
from cotenant.kubernetes.inventory import STEP
from cotenant.kubernetes.parameters import Parameters

REQUEST = "gpu"
MOST_ALTERNATIVES = 8  # that the API allows in firstAvailable


class Refused(Exception):
    """Why a pod cannot have what it asks for; its author reads it."""


@dataclass(frozen=True)
class Wish:
    """Of one container, or of all containers of a pod together (`container` is None)."""

    container: str | None = None
    tenant_class: str = "standard"
    count: int = 1
    memory_bytes: int | None = None  # of each GPU; None: a part of it
    memory_part: Fraction = Fraction(1)
    share: int = 0
    parameters: Parameters = field(default_factory=Parameters)
    selectors: tuple[str, ...] = ()  # in the Common Expression Language


@dataclass
class Understood:
    """What a dialect found in a pod, and takes out of it: claims say it instead."""

    wishes: list[Wish] = field(default_factory=list)
    resources: set[str] = field(default_factory=set)  # of containers
    scheduler: str = ""  # that the other project has; the stock one does it here
    words: dict[str, str] = field(
        default_factory=dict
    )  # affinity, anti_affinity, exclusion: who shares a GPU
    needs_placer: str = ""  # why it cannot be honoured without one
    warnings: list[str] = field(default_factory=list)


def template(wish: Wish, namespace: str, gpu_bytes: Callable[[], Sequence[int]]) -> dict[str, Any]:
    """Named after what it says: pods that want the same share one. `gpu_bytes` says the sizes of the cluster's
    GPUs, where that matters."""
    spec: dict[str, Any] = {"devices": {"requests": [request(wish, gpu_bytes)]}}
    if wish.count > 1:
        # Else two of the GPUs could be one.
        spec["devices"]["constraints"] = [
            {"requests": [REQUEST], "distinctAttribute": f"{names.DRIVER}/uuid"}
        ]
    if wish.parameters != Parameters():
        opaque = {"driver": names.DRIVER, "parameters": wish.parameters.written()}
        spec["devices"]["config"] = [{"opaque": opaque}]
    digest = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": f"cotenant-{digest[:16]}", "namespace": namespace, "labels": dict(names.LABELS)},
        "spec": {"spec": spec},
    }


def request(wish: Wish, gpu_bytes: Callable[[], Sequence[int]]) -> dict[str, Any]:
    whole = wish.memory_bytes is None and wish.memory_part == 1
    if wish.memory_bytes is not None or whole:
        return {"name": REQUEST, "exactly": exact(wish, wish.memory_bytes)}
    # A part of a GPU is another number of bytes on a GPU of another size.
    sizes = sorted(set(gpu_bytes()))
    if not sizes:
        raise Refused(
            "a part of a GPU's memory was asked for, and no node offers a GPU yet: ask for bytes, or wait"
        )
    if len(sizes) > MOST_ALTERNATIVES:
        raise Refused(
            f"a part of a GPU's memory was asked for, and GPUs have {len(sizes)} sizes: ask for bytes"
        )
    if len(sizes) == 1:
        return {"name": REQUEST, "exactly": exact(wish, part_of(sizes[0], wish.memory_part))}
    alternatives = []
    for number, size in enumerate(reversed(sizes)):
        quantity = quantities.of_bytes(size)
        fits = f'device.capacity["{names.DRIVER}"].memory.compareTo(quantity("{quantity}")) == 0'
        alternatives.append(
            {"name": f"size-{number}"} | exact(wish, part_of(size, wish.memory_part), (*wish.selectors, fits))
        )
    return {"name": REQUEST, "firstAvailable": alternatives}


def part_of(size: int, part: Fraction) -> int:
    return max(STEP, int(size * part) // STEP * STEP)


def exact(wish: Wish, memory: int | None, selectors: Sequence[str] | None = None) -> dict[str, Any]:
    capacity = {names.SHARE: str(wish.share)} if wish.share else {}
    if memory is not None:
        capacity[names.MEMORY] = quantities.of_bytes(memory)
    made: dict[str, Any] = {"deviceClassName": names.device_class(wish.tenant_class)}
    if wish.count > 1:
        made |= {"allocationMode": "ExactCount", "count": wish.count}
    if capacity:
        made["capacity"] = {"requests": capacity}
    if expressions := wish.selectors if selectors is None else selectors:
        made["selectors"] = [{"cel": {"expression": expression}} for expression in expressions]
    return made
