"""A GPU of this machine as MIG sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cotenant.errors import USAGE, Problem
from cotenant.gpus import naming, nvml
from cotenant.launch import driver
from cotenant.mig import geometry
from cotenant.mig.geometry import MODELS, Geometry


@dataclass(frozen=True)
class Card:
    geometry: Geometry
    index: str  # as nvidia-smi takes it
    is_on: bool  # MIG is
    instances: tuple[str, ...]  # UUIDs of those that are there


def here(environment: Mapping[str, str], wanted: str | None) -> Card:
    """The GPU that is named, else the first that can be partitioned. Raises Problem."""
    hint = f"--model plans without one: {', '.join(MODELS)}"
    try:
        with nvml.session(driver.find(environment)) as ml:
            listed = [nvml.describe(ml, i) for i in range(ml.nvmlDeviceGetCount())] if ml else []
            if not listed:
                raise Problem("NVML lists no GPU", hint)
            if wanted:
                name = naming.visible_devices(wanted, {}, listed)
                listed = [gpu for gpu in listed if name in (str(gpu.index), gpu.uuid)]
                if not listed:
                    raise Problem(f"'{wanted}' is no whole GPU", "name the GPU, not an instance", USAGE)
            well = [gpu for gpu in listed if not gpu.problem]
            if not well:
                raise Problem(f"GPU {listed[0].index} does not answer: {listed[0].problem}", hint)
            listed = well
            for gpu in listed:
                device = ml.nvmlDeviceGetHandleByIndex(gpu.index)
                found = geometry.from_nvml(ml, device, gpu.name, 0) or geometry.known(gpu.name)
                if found:
                    return Card(found, str(gpu.index), gpu.mig, gpu.instances)
    except driver.NoDriver as error:
        raise Problem(str(error), hint) from None
    raise Problem(f"{listed[0].name} has no MIG", hint)
