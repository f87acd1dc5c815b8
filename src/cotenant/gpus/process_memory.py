"""What NVML reports of each process's GPU memory: the figures of nvidia-smi, for comparison with the tenants' own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cotenant.gpus import nvml
from cotenant.launch import driver


def by_process(environment: Mapping[str, str]) -> dict[tuple[str, int], int]:
    """Bytes by GPU and PID; empty where there is no NVML, and without the processes that it does not tell."""
    try:
        driver_file = driver.find(environment)
    except driver.NoDriver:
        return {}
    found: dict[tuple[str, int], int] = {}
    with nvml.session(driver_file) as ml:
        for index in range(ml.nvmlDeviceGetCount()) if ml else ():
            device = ml.nvmlDeviceGetHandleByIndex(index)
            uuid = nvml.text(ml.nvmlDeviceGetUUID(device))
            for process in processes(ml, device):
                if process.usedGpuMemory is not None:
                    found[uuid, process.pid] = int(process.usedGpuMemory)
    return found


def processes(ml: Any, device: Any) -> list[Any]:
    try:
        return list(ml.nvmlDeviceGetComputeRunningProcesses(device))
    except ml.NVMLError:
        return []
