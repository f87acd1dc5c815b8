"""The GPUs of a node as a ResourceSlice: one device for each GPU or MIG instance, which many claims share.

A claim takes amounts of a device's capacities, and the stock scheduler counts them:

    memory     GPU memory that is the claim's whatever others do; all of it unless the claim says less
    overflow   what it may allocate beyond that, and has on the host while others need the GPU's memory
    share      percent of the GPU's time that are reserved
    tenants    claims at once; each takes one
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cotenant.gpus.nvml import Gpu
from cotenant.kubernetes import names, quantities

MOST_TENANTS = 64
STEP = 1 << 20
SPREAD, PACK, FIXED = ORDERS = ("spread", "pack", "fixed")
DEVICES_IN_A_SLICE = 64  # with taints; the API's own limit


@dataclass(frozen=True)
class Device:
    """A GPU or MIG instance as claims see it."""

    name: str
    uuid: str
    product: str
    memory_bytes: int
    pci_id: str = ""
    index: str = ""  # as NVIDIA's tools have it: 0, or 0:1 for the second instance of a GPU in MIG mode
    parent: str = ""  # of a MIG instance: the UUID of the GPU that it is a part of
    profile: str = ""  # and its profile: 3g.71gb

    @property
    def is_mig(self) -> bool:
        return self.parent != ""


@dataclass(frozen=True)
class Taint:
    key: str
    effect: str
    value: str = ""


def devices_of(gpus: Iterable[Gpu], instance_bytes: Mapping[str, int]) -> list[Device]:
    """The GPUs that can be shared; of a GPU in MIG mode its instances, whose memory is given by UUID."""
    found: list[Device] = []
    for gpu in gpus:
        if not gpu.mig:
            name, index = device_name(gpu.uuid), str(gpu.index)
            found.append(Device(name, gpu.uuid, gpu.name, gpu.memory_bytes, gpu.pci_id, index))
        for number, (uuid, name) in enumerate(zip(gpu.instances, gpu.instance_names, strict=True)):
            if size := instance_bytes.get(uuid, 0):
                index, profile = f"{gpu.index}:{number}", name.rpartition(" MIG ")[2]
                found.append(
                    Device(device_name(uuid), uuid, gpu.name, size, gpu.pci_id, index, gpu.uuid, profile)
                )
    return found


def device_name(uuid: str) -> str:
    """A DNS label that stays the GPU's when others are added or removed."""
    return "".join(letter if letter.isalnum() else "-" for letter in uuid.lower()).strip("-")[:63]


@dataclass(frozen=True)
class Taken:
    """What claims have of a device: percent of its time, bytes of its memory, and how many they are."""

    share: int = 0
    memory: int = 0
    claims: int = 0


def ordered(devices: Sequence[Device], taken: Mapping[str, Taken], order: str) -> list[Device]:
    """The stock scheduler takes the first device of a slice that has room: `spread` puts the one of which least is
    taken first, `pack` the fullest. Among equals the order stays."""
    if order == FIXED:
        return list(devices)

    def load(device: Device) -> tuple[float, int]:
        found = taken.get(device.name, Taken())
        return found.share / 100 + found.memory / max(1, device.memory_bytes), found.claims

    return sorted(devices, key=load, reverse=order == PACK)


def slice_of(
    node: str,
    devices: Sequence[Device],
    overflow_bytes: int,
    taints: Mapping[str, Sequence[Taint]] | None = None,
    generation: int = 1,
    owner: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The node's ResourceSlice. `taints` are by the device's name; `owner` is the node's UID."""
    metadata: dict[str, Any] = {"name": f"{node}-{names.DRIVER}", "labels": dict(names.LABELS)}
    if owner:
        metadata["ownerReferences"] = [{"apiVersion": "v1", "kind": "Node", "controller": True, **owner}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": metadata,
        "spec": {
            "driver": names.DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": generation, "resourceSliceCount": 1},
            "devices": [
                described(device, overflow_bytes // max(1, len(devices)), (taints or {}).get(device.name, ()))
                for device in devices[:DEVICES_IN_A_SLICE]
            ],
        },
    }


def described(device: Device, overflow_bytes: int, taints: Sequence[Taint]) -> dict[str, Any]:
    memory = quantities.of_bytes(device.memory_bytes // STEP * STEP)
    overflow = quantities.of_bytes(overflow_bytes // STEP * STEP)
    attributes: dict[str, dict[str, Any]] = {
        "uuid": {"string": device.uuid},
        "productName": {"string": device.product[:64]},
        "type": {"string": "mig" if device.is_mig else "gpu"},
    }
    if device.is_mig:
        attributes |= {"profile": {"string": device.profile}, "parentUUID": {"string": device.parent}}
    if device.pci_id:
        attributes["pciBusID"] = {"string": device.pci_id.lower()}
    shown: dict[str, Any] = {
        "name": device.name,
        "attributes": attributes,
        "allowMultipleAllocations": True,
        "capacity": {
            names.MEMORY: capacity(memory, default=memory, least="0", step="1Mi"),
            names.SHARE: capacity("100", default="0", least="0", step="1"),
            names.TENANTS: capacity(str(MOST_TENANTS), default="1", least="1", step="1", most="1"),
        },
    }
    if overflow != "0":  # the API accepts no capacity that is smaller than its step
        shown["capacity"][names.OVERFLOW] = capacity(overflow, default="0", least="0", step="1Mi")
    if taints:
        shown["taints"] = [
            {"key": taint.key, "effect": taint.effect, **({"value": taint.value} if taint.value else {})}
            for taint in taints
        ]
    return shown


def capacity(value: str, default: str, least: str, step: str, most: str | None = None) -> dict[str, Any]:
    valid = {"min": least, "step": step} | ({"max": most} if most else {})
    return {"value": value, "requestPolicy": {"default": default, "validRange": valid}}
