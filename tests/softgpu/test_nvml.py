"""NVIDIA's own NVML bindings on the software GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.conftest import REAL_GPU, RunPython

pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
pytestmark = pytest.mark.skipif(REAL_GPU, reason="about the software GPU's own NVML")

DESCRIBE = """
import json, pynvml
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
uuid = pynvml.nvmlDeviceGetUUID(handle)
place = pynvml.nvmlDeviceGetPciInfo(handle).busId
memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
newer = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
print(json.dumps({
    "count": pynvml.nvmlDeviceGetCount(),
    "driver": pynvml.nvmlSystemGetDriverVersion(),
    "cuda": pynvml.nvmlSystemGetCudaDriverVersion(),
    "name": pynvml.nvmlDeviceGetName(handle),
    "by uuid": pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID(uuid)),
    "by place": pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByPciBusId(place)),
    "uuid": uuid,
    "memory": [memory.total, memory.free, memory.used],
    "newer": [newer.total, newer.free, newer.used],
    "processes": [(p.pid, p.usedGpuMemory) for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)],
    "mig": pynvml.nvmlDeviceGetMigMode(handle),
    "compute mode": pynvml.nvmlDeviceGetComputeMode(handle),
    "busy": pynvml.nvmlDeviceGetUtilizationRates(handle).gpu,
}))
pynvml.nvmlShutdown()
"""

# Allocates, says so, and stays until its input ends.
ALLOCATE = """
import sys
from cuda.bindings import driver
driver.cuInit(0)
_, context = driver.cuDevicePrimaryCtxRetain(0)
driver.cuCtxSetCurrent(context)
_, pointer = driver.cuMemAlloc(100 << 20)
print(driver.cuDeviceGetUuid(0)[1].bytes.hex(), flush=True)
sys.stdin.read()
"""


def describe(run_python: RunPython, env: dict[str, str]) -> dict[str, Any]:
    done = run_python(DESCRIBE, env)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_an_idle_device(run_python: RunPython, softgpu_env: dict[str, str]) -> None:
    answer = describe(run_python, softgpu_env)
    assert answer["count"] == 1
    assert answer["driver"] == "580.00 (software)"
    assert answer["cuda"] == 13000
    assert (answer["by uuid"], answer["by place"]) == (0, 0)
    assert answer["mig"] == [0, 0]
    assert answer["processes"] == []
    total, free, used = answer["memory"]
    assert used == 0 and free == total > 0
    assert answer["newer"] == answer["memory"]


def test_the_processes_on_a_device_and_what_they_hold(
    run_python: RunPython, softgpu_env: dict[str, str]
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ALLOCATE],
        env=softgpu_env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None and child.stdin is not None
        uuid = child.stdout.readline().strip()
        answer = describe(run_python, softgpu_env)
        child.stdin.close()
    assert str(answer["uuid"]).removeprefix("GPU-").replace("-", "") == uuid
    assert answer["processes"] == [[child.pid, 100 << 20]]
    assert answer["memory"][2] == 100 << 20
