"""A software GPU in MIG mode: its instances are GPUs of their own to the driver, NVML, the tenants and `status`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cotenant import segment
from tests.conftest import REAL_GPU
from tests.interposer.conftest import PROGRAMS

if TYPE_CHECKING:
    from tests.conftest import Run, RunPython

pytestmark = pytest.mark.skipif(REAL_GPU, reason="about the software GPU's own instances")

ABOUT = """
import json, pynvml
from cuda.bindings import driver
pynvml.nvmlInit()
gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
parts = [pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, i) for i in range(2)]
driver.cuInit(0)
count = driver.cuDeviceGetCount()[1]
print(json.dumps({
    "gpus": pynvml.nvmlDeviceGetCount(),
    "mode": pynvml.nvmlDeviceGetMigMode(gpu),
    "most": pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu),
    "name": pynvml.nvmlDeviceGetName(gpu),
    "uuid": pynvml.nvmlDeviceGetUUID(gpu),
    "parts": [[pynvml.nvmlDeviceGetUUID(one), pynvml.nvmlDeviceGetName(one), pynvml.nvmlDeviceGetMemoryInfo(one).total]
              for one in parts],
    "parent": pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(parts[1])),
    "seen": [[driver.cuDeviceGetName(100, i)[1].split(b"\\0")[0].decode(),
              driver.cuDeviceGetUuid(i)[1].bytes.hex(),
              driver.cuDeviceGetAttribute(driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, i)[1]]
             for i in range(count)],
}))
"""
# Puts a kernel of twenty seconds on its instance, or a short one; says when it is there, and when it has ended.
JOB = """
import sys
from soft import Gpu, check, driver
gpu = Gpu(); check(driver.cuMemAlloc(1 << 20))
gpu.launch(gpu.kernel("empty")); gpu.synchronize()
if sys.argv[1] == "long":
    for _ in range(1000): gpu.launch(gpu.kernel("long"))
    print("there", flush=True)
gpu.synchronize()
print("ended", flush=True)
"""


@pytest.fixture
def env(softgpu_env: dict[str, str]) -> dict[str, str]:
    path = os.pathsep.join([str(PROGRAMS), softgpu_env["PYTHONPATH"]])
    return softgpu_env | {"COTENANT_SOFTGPU": "h200:3g.71gb+1g.18gb,small", "PYTHONPATH": path}


def about(run_python: RunPython, env: dict[str, str]) -> dict[str, Any]:
    done = run_python(ABOUT, env)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def digits(uuid: str) -> str:
    return uuid[4:].replace("-", "")


def test_nvml_and_the_driver_agree_about_instances(run_python: RunPython, env: dict[str, str]) -> None:
    found = about(run_python, env)
    assert (found["gpus"], found["mode"], found["most"], found["name"]) == (2, [1, 1], 7, "NVIDIA H200")
    (large, small) = found["parts"]
    assert large[0].startswith("MIG-") and large[0] != small[0] and found["parent"] == found["uuid"]
    assert (large[1], large[2]) == ("NVIDIA H200 MIG 3g.71gb", 67072 << 20)
    # CUDA shows the first instance alone, and others where they are named.
    assert [one[0] for one in found["seen"]] == ["NVIDIA H200 MIG 3g.71gb", "Cotenant Software GPU"]
    assert found["seen"][0][1] == digits(large[0]) and found["seen"][0][2] == 60
    (named,) = about(run_python, env | {"CUDA_VISIBLE_DEVICES": small[0]})["seen"]
    assert named == ["NVIDIA H200 MIG 1g.18gb", digits(small[0]), 16]


def test_tenants_of_different_instances_are_scheduled_separately(
    cotenant: Run, run_python: RunPython, env: dict[str, str], tmp_path: Path
) -> None:
    (large, small) = (one[0] for one in about(run_python, env)["parts"])

    def command(tenant_class: str, uuid: str, length: str) -> list[str]:
        options = [
            "run",
            "--require",
            "--class",
            tenant_class,
            "--gpu",
            uuid,
            "--",
            sys.executable,
            "-c",
            JOB,
            length,
        ]
        return [sys.executable, "-m", "cotenant", *options]

    busy = subprocess.Popen(command("production", large, "long"), env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert busy.stdout is not None and busy.stdout.readline() == "there\n"
        # It would wait for production, were it on the same instance.
        beside = subprocess.run(
            command("opportunistic", small, "short"),
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (beside.returncode, beside.stdout) == (0, "ended\n"), beside.stderr
        seen = segment.read(Path(env["COTENANT_SEGMENT"]))
        assert {digits(uuid) for uuid in seen.gpus.values()} == {digits(large), digits(small)}
        assert busy.poll() is None

        shown = json.loads(cotenant("status", "-o", "json", env=env).stdout)
        assert {gpu["uuid"] for gpu in shown["gpus"]} == {large, small}
        (tenant,) = shown["tenants"]
        (here,) = tenant["gpus"]
        assert here["uuid"] == large and here["nvml_bytes"] is not None
        wide = cotenant("status", "-o", "wide", env=env).stdout
        assert f"is {large}, NVIDIA H200 MIG 3g.71gb, of GPU 0" in wide
    finally:
        busy.kill()
        busy.communicate()


def test_doctor_lists_instances_and_the_plan_is_what_the_driver_can_do(
    cotenant: Run, run_python: RunPython, env: dict[str, str]
) -> None:
    (large, small) = (one[0] for one in about(run_python, env)["parts"])
    said = cotenant("doctor", "-o", "json", env=env).stdout
    (mig,) = (one for one in json.loads(said)["checks"] if one["name"] == "mig")
    assert f"3g.71gb {large}" in json.dumps(mig) and f"1g.18gb {small}" in json.dumps(mig)
    done = cotenant("mig", "plan", "-o", "json", "serve=10G,16", "train=40G,50", env=env)
    planned = json.loads(done.stdout)
    assert planned["model"] == "NVIDIA H200"
    assert [one["profile"] for one in planned["instances"]] == ["1g.18gb", "3g.71gb"]
    assert planned["instances"][1]["memory_bytes"] == 67072 << 20
    # MIG is on, and what is there must go first.
    assert planned["commands"][:2] == ["nvidia-smi mig -i 0 -dci", "nvidia-smi mig -i 0 -dgi"]
    refused = cotenant("mig", "plan", "--gpu", "1", "serve=1G", env=env)
    assert refused.returncode == 1 and "Cotenant Software GPU has no MIG" in refused.stderr


def test_a_gpu_without_mig_is_planned_by_the_table(cotenant: Run, env: dict[str, str]) -> None:
    done = cotenant("mig", "plan", "-o", "json", "serve=10G", env=env | {"COTENANT_SOFTGPU": "h200"})
    planned = json.loads(done.stdout)
    assert planned["commands"][0] == "nvidia-smi -i 0 -mig 1"
    assert planned["instances"][0]["profile"] == "1g.18gb"
