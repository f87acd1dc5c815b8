"""Naming GPUs: what `--gpu` says, turned into CUDA_VISIBLE_DEVICES.

An index counts the way CUDA does: within CUDA_VISIBLE_DEVICES where that is set. A UUID (`GPU-...` or
`MIG-...`) may be shortened as CUDA allows. A PCI id (`00000000:65:00.0`, as in nvidia-smi) becomes a UUID.
What NVML knows is checked; without NVML an index or UUID is passed on as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from cotenant import units
from cotenant.errors import USAGE, Problem
from cotenant.gpus.nvml import Gpu

PCI_ID = re.compile(r"(?:([0-9a-f]{4}|[0-9a-f]{8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?", re.I)
UUID = re.compile(r"(?:GPU|MIG)-[0-9a-f-/]*", re.I)


def visible_devices(wanted: str, environment: Mapping[str, str], gpus: Sequence[Gpu] | None) -> str:
    """The value for CUDA_VISIBLE_DEVICES; `gpus` is what NVML lists, None without NVML."""
    visible = visible_now(environment)
    chosen = [choose(item.strip(), visible, environment, gpus) for item in wanted.split(",")]
    if len(set(chosen)) < len(chosen):
        raise Problem(f"--gpu {wanted} names a GPU twice", status=USAGE)
    return ",".join(chosen)


def visible_now(environment: Mapping[str, str]) -> list[str] | None:
    """The devices that CUDA would show, None for all: CUDA stops at the first entry that names none."""
    value = environment.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return None
    shown: list[str] = []
    for item in value.split(","):
        entry = item.strip()
        if units.whole(entry) is None and not UUID.fullmatch(entry):
            break
        shown.append(entry)
    return shown


def first_model(environment: Mapping[str, str], gpus: Sequence[Gpu] | None) -> str:
    """The name of the GPU that CUDA would show first, as far as NVML's order is CUDA's; "": not known."""
    visible = visible_now(environment)
    if not gpus or visible == []:
        return ""
    first = visible[0] if visible else "0"
    if (index := units.whole(first)) is not None:
        return gpus[index].name if index < len(gpus) else ""
    return next((gpu.name for gpu in gpus if gpu.uuid.casefold().startswith(first.casefold())), "")


def choose(
    item: str, visible: list[str] | None, environment: Mapping[str, str], gpus: Sequence[Gpu] | None
) -> str:
    if (index := units.whole(item)) is not None:
        if visible is not None:
            if index < len(visible):
                return visible[index]
            raise no_gpu(
                item, [f"{i} ({name})" for i, name in enumerate(visible)], "CUDA_VISIBLE_DEVICES shows"
            )
        if gpus is None or index < len(gpus):
            return str(index)
        raise no_gpu(item, map(str, gpus))
    if UUID.fullmatch(item):
        if gpus is None:
            return item
        known = [uuid for gpu in gpus for uuid in (gpu.uuid, *gpu.instances)]
        matches = [uuid for uuid in known if uuid.casefold().startswith(item.casefold())]
        if len(matches) != 1:
            raise no_gpu(item, map(str, gpus), "it must name exactly one of" if matches else "there is")
        return only_if_visible(item, matches[0], visible, environment, gpus)
    if pci := PCI_ID.fullmatch(item):
        if gpus is None:
            raise Problem(f"no NVML to look up the PCI id '{item}'", "give an index or a UUID", USAGE)
        for gpu in gpus:
            if pci_key(pci) == pci_key(PCI_ID.fullmatch(gpu.pci_id)):
                return only_if_visible(item, gpu.uuid, visible, environment, gpus)
        raise no_gpu(item, map(str, gpus))
    raise no_gpu(item, map(str, gpus or ()))


def only_if_visible(
    item: str, uuid: str, visible: list[str] | None, environment: Mapping[str, str], gpus: Sequence[Gpu]
) -> str:
    if visible is None:
        return uuid
    # By default CUDA numbers the fastest GPU first; only between equals is that NVML's order.
    same_order = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or len({gpu.name for gpu in gpus}) == 1
    for entry in visible:
        if (index := units.whole(entry)) is not None:
            if not same_order or (index < len(gpus) and gpus[index].uuid == uuid):
                return uuid
        elif uuid.casefold().startswith(entry.casefold()):
            return uuid
    raise no_gpu(item, visible, "CUDA_VISIBLE_DEVICES shows")


def no_gpu(item: str, known: Iterator[str] | Sequence[str] | map[str], lead: str = "there is") -> Problem:
    listed = "; ".join(known)
    hint = f"{lead} {listed}" if listed else "give an index, a UUID (GPU-...) or a PCI id (00000000:65:00.0)"
    return Problem(f"unknown GPU '{item}'", hint, USAGE)


def pci_key(match: re.Match[str] | None) -> tuple[int, ...] | None:
    return None if match is None else tuple(int(part or "0", 16) for part in match.groups())
