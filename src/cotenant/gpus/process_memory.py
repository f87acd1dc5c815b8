"""What NVML reports of each process's GPU memory: the figures of nvidia-smi, for comparison with the tenants' own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cotenant.gpus import instances, nvml
from cotenant.launch import driver


def by_process(environment: Mapping[str, str]) -> dict[tuple[str, int], int]:
    """Bytes by the GPU's UUID in a segment and PID. Empty where there is no NVML; without processes of which it does
    not tell."""
    try:
        driver_file = driver.find(environment)
    except driver.NoDriver:
        return {}
    found: dict[tuple[str, int], int] = {}
    with nvml.session(driver_file) as ml:
        for index in range(ml.nvmlDeviceGetCount()) if ml else ():
            gpu = nvml.describe(ml, index)
            if gpu.problem:
                continue
            for uuid in gpu.instances if gpu.mig else (gpu.uuid,):
                for process in processes(ml, ml.nvmlDeviceGetHandleByUUID(uuid)):
                    if process.usedGpuMemory is not None:
                        found[instances.in_segment(uuid), process.pid] = int(process.usedGpuMemory)
    return found


def processes(ml: Any, device: Any) -> list[Any]:
    try:
        return list(ml.nvmlDeviceGetComputeRunningProcesses(device))
    except ml.NVMLError:
        return []
