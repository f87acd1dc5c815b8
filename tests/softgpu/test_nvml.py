"""NVIDIA's own NVML bindings on the software GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
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
memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
newer = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
print(json.dumps({
    "count": pynvml.nvmlDeviceGetCount(),
    "driver": pynvml.nvmlSystemGetDriverVersion(),
    "name": pynvml.nvmlDeviceGetName(handle),
    "by uuid": pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByUUID(uuid)),
    "place": pynvml.nvmlDeviceGetPciInfo(handle).busId,
    "uuid": uuid,
    "memory": [memory.total, memory.free, memory.used],
    "newer": [newer.total, newer.free, newer.used],
    "processes": [(p.pid, p.usedGpuMemory) for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)],
    "mig": pynvml.nvmlDeviceGetMigMode(handle),
}))
pynvml.nvmlShutdown()
"""

CLOCK = """
import json, pynvml
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
def ask(name, *arguments):
    try:
        return getattr(pynvml, "nvmlDeviceGet" + name)(handle, *arguments)
    except pynvml.NVMLError as error:
        return str(error)
print(json.dumps([
    ask("ClockInfo", pynvml.NVML_CLOCK_SM), ask("MaxClockInfo", pynvml.NVML_CLOCK_SM), ask("ClockInfo", 9),
    ask("PowerUsage"), ask("EnforcedPowerLimit"),
    ask("CurrentClocksEventReasons"), ask("CurrentClocksThrottleReasons")]))
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
    assert (answer["by uuid"], answer["place"]) == (answer["name"], "00000000:01:00.0")
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


def test_the_clock_is_the_highest_until_a_file_says_otherwise(
    run_python: RunPython, softgpu_env: dict[str, str]
) -> None:
    def ask() -> object:
        done = run_python(CLOCK, softgpu_env)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    unknown, refused, lost = "Not Supported", "Invalid Argument", "GPU is lost"
    assert ask() == [1980, 1980, refused, unknown, 100_000, 0, 0]
    says = Path(softgpu_env["COTENANT_SOFTGPU_DIR"]) / "clock.0"
    says.write_text("clock_mhz = 1455\npower_w = 99.5\nreasons = 0x24\n")
    assert ask() == [1455, 1980, refused, 99_500, 100_000, 0x24, 0x24]
    says.write_text("answer = 15\n")
    assert ask() == [lost] * 7
