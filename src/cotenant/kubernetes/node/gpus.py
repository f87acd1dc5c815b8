"""The GPUs of this node, and the driver that they have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cotenant.errors import Problem
from cotenant.gpus import nvml
from cotenant.kubernetes.inventory import Device, devices_of
from cotenant.launch import driver, native_files


def found(environment: Mapping[str, str]) -> tuple[list[Device], bool]:
    """The devices, and whether they are software GPUs. Raises Problem."""
    try:
        file = driver.find(environment)
    except driver.NoDriver as error:
        raise Problem(
            str(error), "`cotenant softgpu -- cotenant kubernetes agent` offers a software GPU"
        ) from None
    with nvml.session(file) as ml:
        if ml is None:
            raise Problem(f"the NVML beside {file} does not answer", "`nvidia-smi` on this node says more")
        every = [nvml.describe(ml, index) for index in range(ml.nvmlDeviceGetCount())]
        gpus = [gpu for gpu in every if not gpu.problem]
        sizes = {uuid: instance_bytes(ml, uuid) for gpu in gpus for uuid in gpu.instances}
    devices = devices_of(gpus, sizes)
    if not devices:
        raise Problem("this node has no GPU that can be shared", "`cotenant doctor` says more")
    return devices, native_files.is_softgpu(Path(file))


def instance_bytes(ml: Any, uuid: str) -> int:
    try:
        return int(ml.nvmlDeviceGetMemoryInfo(ml.nvmlDeviceGetHandleByUUID(uuid.encode())).total)
    except ml.NVMLError:
        return 0


def are_well(file_environment: Mapping[str, str], devices: list[Device]) -> dict[str, str]:
    """Of each device, by its name, what is wrong with it; empty: nothing."""
    try:
        file = driver.find(file_environment)
    except driver.NoDriver as error:  # it is being replaced, for one
        return {device.name: str(error) for device in devices}
    with nvml.session(file) as ml:
        if ml is None:
            return {device.name: "NVML does not answer" for device in devices}
        return {device.name: problem_of(ml, device.uuid) for device in devices}


def problem_of(ml: Any, uuid: str) -> str:
    try:
        ml.nvmlDeviceGetMemoryInfo(ml.nvmlDeviceGetHandleByUUID(uuid.encode()))
    except ml.NVMLError as error:
        return str(error)
    return ""
