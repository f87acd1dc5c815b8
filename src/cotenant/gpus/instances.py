"""MIG instances as `status` and `doctor` name them. A segment has an instance's UUID with GPU- in front, as it only has
its bytes; each is a GPU of its own there, so tenants of different instances are scheduled separately."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cotenant.gpus import nvml
from cotenant.gpus.nvml import Gpu
from cotenant.launch import driver


@dataclass(frozen=True)
class Instance:
    uuid: str  # MIG-...
    name: str  # "NVIDIA H200 MIG 3g.71gb"
    gpu: Gpu  # that it is a part of


def in_segment(uuid: str) -> str:
    """As a segment has it."""
    return uuid.replace("MIG-", "GPU-", 1)


def of(gpus: Sequence[Gpu]) -> dict[str, Instance]:
    """By their UUID in a segment."""
    return {
        in_segment(uuid): Instance(uuid, name, gpu)
        for gpu in gpus
        for uuid, name in zip(gpu.instances, gpu.instance_names, strict=False)
    }


def here(environment: Mapping[str, str]) -> dict[str, Instance]:
    """Of this machine, by their UUID in a segment; empty where there is no NVML."""
    try:
        return of(nvml.installed(driver.find(environment)) or [])
    except driver.NoDriver:
        return {}
