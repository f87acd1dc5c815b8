"""What NVML answers to the daemon's two questions about a GPU's processes, and how many milliseconds it takes."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from cotenant.gpus import nvml
from cotenant.launch import driver

TIMES = 20


def main() -> int:
    found: dict[str, Any] = {}
    with nvml.session(driver.find(os.environ)) as ml:
        if ml is None:
            print("no NVML", file=sys.stderr)
            return 1
        device = ml.nvmlDeviceGetHandleByIndex(0)
        asked: dict[str, Callable[[], list[Any]]] = {
            "processes": lambda: [one.pid for one in ml.nvmlDeviceGetComputeRunningProcesses(device)],
            "utilization": lambda: [
                (one.pid, one.smUtil) for one in ml.nvmlDeviceGetProcessUtilization(device, 0)
            ],
        }
        for name, ask in asked.items():
            took = []
            for _ in range(TIMES):
                began = time.perf_counter()
                try:
                    found[name] = ask()
                except ml.NVMLError as error:
                    found[name] = str(error)
                took.append(1000 * (time.perf_counter() - began))
            found[f"{name}_ms"] = {"median": statistics.median(took), "longest": max(took)}
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
