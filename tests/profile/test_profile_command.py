"""`cotenant profile`: the command runs as ever, and what its kernels are like is kept, shown and used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant.profile import store
from cotenant.profile.columns import KernelClass
from cotenant.traces import read
from tests.interposer.conftest import PROGRAMS

if TYPE_CHECKING:
    from tests.conftest import Run

Profile = Callable[..., subprocess.CompletedProcess[str]]
HERE = Path(__file__).parent
PRODUCT = "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN"
BEGIN = f"""
import sys
from soft import Gpu, check, driver
gpu = Gpu(); stream = gpu.stream()
module = check(driver.cuModuleLoadData(b'''softgpu 1
kernel {PRODUCT} time=200us sms=all
kernel softmax_warp_forward time=50us sms=2
'''))
def launch(name, blocks, times):
    kernel = check(driver.cuModuleGetFunction(module, name.encode()))
    for _ in range(times): check(driver.cuLaunchKernel(kernel, blocks, 1, 1, 1024, 1, 1, 0, stream, 0, 0))
def synchronize(): check(driver.cuStreamSynchronize(stream))
"""
WORK = (
    f"launch('{PRODUCT}', 64, 40); launch('softmax_warp_forward', 2, 40); synchronize(); print('the end')\n"
)


@pytest.fixture
def env(softgpu_env: dict[str, str], tmp_path: Path) -> dict[str, str]:
    path = os.pathsep.join([str(PROGRAMS), softgpu_env["PYTHONPATH"]])
    return softgpu_env | {"PYTHONPATH": path, "XDG_CACHE_HOME": str(tmp_path / "cache")}


@pytest.fixture
def profile(cotenant: Run, env: dict[str, str]) -> Profile:
    def run(source: str, *options: str, **extra: str) -> subprocess.CompletedProcess[str]:
        return cotenant("profile", *options, "--", sys.executable, "-c", BEGIN + source, env=env | extra)

    return run


def test_each_kernel_has_its_time_sms_and_class_and_runs_add_up(
    profile: Profile, cotenant: Run, env: dict[str, str]
) -> None:
    for _ in range(2):
        done = profile(WORK, "--name", "train")
        assert (done.returncode, done.stdout) == (0, "the end\n")
        assert "train on Cotenant Software GPU" in done.stderr and "profile show" in done.stderr
    shown = json.loads(cotenant("profile", "show", "-o", "json", env=env).stdout)
    (found,) = shown["gpus"]
    assert (found["gpu"]["name"], found["gpu"]["sms"]) == ("Cotenant Software GPU", 8)
    kernels = {one["name"]: one for one in found["kernels"]}
    product, softmax = kernels[PRODUCT], kernels["softmax_warp_forward"]
    assert (product["launches"], product["runs"], product["grid"], product["block"]) == (
        80,
        2,
        [64, 1, 1],
        [1024, 1, 1],
    )
    assert product["samples"] > 0 and product["mean_us"] >= 200
    # 64 blocks, two of which fit on each of the 8 SMs; and two blocks on one.
    assert (product["blocks_per_sm"], product["sms"], softmax["sms"]) == (2, 8, 1)
    assert product["registers"] == 32
    assert (product["class"], product["tensor"], product["measured"]) == ("compute", True, False)
    assert softmax["class"] == "unknown"  # it fills an eighth of the GPU
    assert list(shown["jobs"]["train"]) == ["Cotenant Software GPU"]

    table = cotenant("profile", "show", "--top", "1", env=env).stdout
    assert "~compute" in table and PRODUCT in table and "softmax" not in table
    assert "train on Cotenant Software GPU" in table
    rows = cotenant("profile", "show", "-o", "csv", env=env).stdout.splitlines()
    assert len(rows) == 1 + len(found["kernels"]) and rows[0].startswith("gpu,kind,name,grid")


def test_the_commands_status_is_ours_and_work_on_no_gpu_is_said(
    profile: Profile, cotenant: Run, env: dict[str, str]
) -> None:
    assert profile("synchronize(); sys.exit(7)").returncode == 7
    assert profile("import os; os.kill(os.getpid(), 9)").returncode == 137
    done = cotenant("profile", "--", "true", env=env)
    assert done.returncode == 0 and "put no work on a GPU" in done.stderr
    assert cotenant("profile", "no-such-program", env=env).returncode == 127
    assert "no command given" in cotenant("profile", "--", env=env).stderr


def test_without_a_place_for_the_profile_the_command_is_not_started(
    profile: Profile, cotenant: Run, env: dict[str, str]
) -> None:
    for extra, error in (
        ({"XDG_CACHE_HOME": "", "HOME": ""}, "error: there is no place for profiles\nhint: set HOME or"),
        ({"XDG_CACHE_HOME": "/proc/none"}, "error: cannot write /proc/none/cotenant/profiles/kernels: "),
    ):
        done = profile(WORK, **extra)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(error)


def test_where_the_profile_cannot_be_kept_the_trace_and_the_status_are_there(
    profile: Profile, env: dict[str, str], tmp_path: Path
) -> None:
    assert profile(WORK, "--name", "train").returncode == 0
    (file,) = (tmp_path / "cache" / "cotenant" / "profiles" / "kernels").glob("*.json")
    file.write_text("nonsense")
    for source, status in ((WORK + "sys.exit(7)", 7), (WORK, 1)):
        trace = tmp_path / f"{status}.trace"
        done = profile(source, "--trace", str(trace))
        assert (done.returncode, done.stdout) == (status, "the end\n")
        assert f"error: {file} is damaged" in done.stderr and f"hint: remove {file}" in done.stderr
        assert len(read(trace).operations) > 80


def test_nsight_compute_measures_what_was_estimated(
    profile: Profile, cotenant: Run, env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ncu").symlink_to(HERE / "stand_in_ncu.py")
    extra = {
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{env.get('PATH', os.defpath)}",
        "NCU_KERNELS": f"{PRODUCT}|(64, 1, 1)|(1024, 1, 1)|200,000|83.5|20.1|1000000000|80.0",
    }
    done = profile(WORK, "--source", "both", "--trace", str(tmp_path / "first.trace"), **extra)
    assert (done.returncode, done.stdout) == (0, "the end\nthe end\n"), done.stderr
    assert "measured 1 kernels" in done.stderr
    # A later run only estimates: what was measured stays, and goes into its trace.
    assert profile(WORK, "--trace", str(tmp_path / "job.trace")).returncode == 0
    (found,) = store.profiles(env)
    product = next(one for one in found.kernels.values() if one.name == PRODUCT)
    assert (product.columns.measured, product.columns.compute) == (True, 0.835)
    assert product.launches == 81 and product.columns.kernel_class is KernelClass.compute
    trace = read(tmp_path / "job.trace")
    columns = {shape.name: shape.columns for shape in trace.shapes}
    assert columns[PRODUCT] == product.columns
    softmax = columns["softmax_warp_forward"]
    assert softmax is not None and not softmax.measured

    refused = profile(WORK, "--source", "ncu", NCU_SAYS="==ERROR== ERR_NVGPUCTRPERM - no permission", **extra)
    assert refused.returncode == 1 and "may not read this GPU's counters" in refused.stderr
    assert len(refused.stderr.splitlines()) == 2
    missing = profile(WORK, "--source", "ncu", PATH="/nowhere", CUDA_HOME="/nowhere")
    assert missing.returncode == 1 and "is not installed" in missing.stderr and missing.stdout == ""


def test_a_recorded_trace_can_be_added_and_a_picture_drawn(
    cotenant: Run, env: dict[str, str], tmp_path: Path
) -> None:
    traces = HERE.parents[1] / "examples" / "traces"
    done = cotenant("profile", "add", "--name", "gpt", traces / "gpt.trace", env=env)
    assert done.returncode == 0 and "gpt on NVIDIA H200" in done.stderr
    found = store.job(env, "gpt")["NVIDIA H200"]
    assert found.sms is not None and found.sms > 0.9 and found.tensor > 0.5
    pytest.importorskip("matplotlib")
    for name in ("roofline.png", "roofline.svg"):
        done = cotenant("profile", "show", "--plot", tmp_path / name, env=env)
        assert done.returncode == 0 and (tmp_path / name).stat().st_size > 5000
    assert "no picture" in cotenant("profile", "show", "--plot", tmp_path / "x.txt", env=env).stderr


def test_without_a_profile_show_says_how_to_make_one(cotenant: Run, env: dict[str, str]) -> None:
    done = cotenant("profile", "show", env=env)
    assert (done.returncode, done.stderr.splitlines()[0]) == (1, "error: there is no profile")
