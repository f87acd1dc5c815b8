"""Debian's real Slurm: slurmctld and two slurmd on this machine, jobs on the software GPU.

`make test-slurm` unpacks Slurm and says where it is; without that these tests are skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.compiling import TREE
from tests.slurm.real.daemons import SHARDS, Slurm

ROOT = os.environ.get("COTENANT_TEST_SLURM")
pytestmark = pytest.mark.skipif(not ROOT, reason="needs Debian's Slurm: make test-slurm")

COTENANT = Path(sys.executable).with_name("cotenant")
RULES = """
squeue = "{squeue}"
segment = "{segment}"
shards = {shards}
{more}
[qos.gold]
class = "production"
slowdown = "10%"
[qos.scavenger]
class = "opportunistic"
[partition.serving]
class = "production"
slowdown = "5%"
[default]
class = "standard"
"""
# Uses the GPU, says so, and stays until the file appears.
GUEST = """
import os, sys, time
sys.path.insert(0, {programs!r})
from soft import Gpu
gpu = Gpu()
gpu.launch(gpu.kernel("empty"))
gpu.synchronize()
print("ready", flush=True)
while not os.path.exists({stop!r}):
    time.sleep(0.05)
"""
ALLOCATE = """
import sys
sys.path.insert(0, {programs!r})
from soft import Gpu, driver
gpu = Gpu()
for size in (32, 512):
    code, _ = driver.cuMemAlloc(size << 20)
    print(size, code.name)
"""
PROGRAMS = str(TREE / "tests" / "interposer" / "programs")


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    # Not in pytest's folder: a socket's path may have 107 characters only.
    folder = Path(tempfile.mkdtemp(prefix="cotenant-slurm-"))
    found = Slurm(Path(ROOT or "") / "root", folder)
    try:
        deploy_prolog(folder, COTENANT, folder / "slurm.toml")
        write_rules(found)
        found.start()
        yield found
    finally:
        found.stop()
        shutil.rmtree(folder, ignore_errors=True)


def deploy_prolog(folder: Path, cotenant: Path, rules: Path) -> None:
    """The script that is deployed, with its two paths."""
    text = (TREE / "deploy" / "slurm" / "task-prolog").read_text()
    text = text.replace("/usr/local/bin/cotenant", str(cotenant)).replace(
        "/etc/cotenant/slurm.toml", str(rules)
    )
    path = folder / "task-prolog"
    path.write_text(text)
    path.chmod(0o755)


def write_rules(slurm: Slurm, more: str = "") -> None:
    segment = slurm.folder / "segment"
    (slurm.folder / "slurm.toml").write_text(
        RULES.format(squeue=slurm.squeue, segment=segment, shards=SHARDS, more=more)
    )


Srun = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def srun(slurm: Slurm, softgpu_env: dict[str, str]) -> Srun:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return slurm.run("srun", *words, env=softgpu_env)

    return run


def variables(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    assert done.returncode == 0, done.stderr
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


def test_the_partition_says_the_class_on_every_node(srun: Srun) -> None:
    for node in ("one", "two"):
        seen = variables(srun("-w", node, "-p", "serving", "env"))
        assert seen["SLURMD_NODENAME"] == node
        assert (seen["COTENANT_CLASS"], seen["COTENANT_SLOWDOWN"]) == ("production", "5%")
        assert seen["LD_PRELOAD"].endswith("libcuda.so.1")
    assert variables(srun("env"))["COTENANT_CLASS"] == "standard"


def test_the_qos_says_the_class_before_the_partition_does(srun: Srun) -> None:
    seen = variables(srun("--qos", "gold", "env"))
    assert (seen["COTENANT_CLASS"], seen["COTENANT_SLOWDOWN"]) == ("production", "10%")
    seen = variables(srun("--qos", "scavenger", "-p", "serving", "env"))
    assert seen["COTENANT_CLASS"] == "opportunistic" and "COTENANT_SLOWDOWN" not in seen
    assert variables(srun("--qos", "normal", "-p", "serving", "env"))["COTENANT_CLASS"] == "production"


def test_a_qos_that_the_user_does_not_have_is_slurm_s_to_refuse(srun: Srun) -> None:
    done = srun("--qos", "nosuch", "env")
    assert done.returncode != 0 and "Invalid qos" in done.stderr and done.stdout == ""


def test_shards_are_a_part_of_the_gpu_s_memory(srun: Srun, tmp_path: Path) -> None:
    """Of 1 GiB, as the software GPU has it."""
    assert variables(srun("--gres", "shard:50", "env"))["COTENANT_MEMORY"] == "50%"
    program = tmp_path / "allocate.py"
    program.write_text(ALLOCATE.format(programs=PROGRAMS))
    done = srun("--gres", "shard:25", sys.executable, str(program))
    assert done.stdout.splitlines() == ["32 CUDA_SUCCESS", "512 CUDA_ERROR_OUT_OF_MEMORY"], done.stderr
    done = srun("--gres", "shard:75", sys.executable, str(program))
    assert done.stdout.splitlines() == ["32 CUDA_SUCCESS", "512 CUDA_SUCCESS"], done.stderr


def test_slurm_counts_shards(slurm: Slurm, srun: Srun) -> None:
    """Two nodes with 100 each: 150 are more than either has."""
    done = srun("--immediate=1", "--gres", "shard:150", "env")
    assert done.returncode != 0 and done.stdout == ""


def test_a_comment_asks_for_less(srun: Srun) -> None:
    seen = variables(srun("--comment", "cotenant class=opportunistic memory=1G", "env"))
    assert (seen["COTENANT_CLASS"], seen["COTENANT_MEMORY"]) == ("opportunistic", "1G")


def test_what_a_user_exports_does_not_change_the_class(slurm: Slurm, softgpu_env: dict[str, str]) -> None:
    forged = {
        "SLURM_JOB_PARTITION": "serving",
        "COTENANT_CLASS": "production",
        "COTENANT_SLURM_RULES": "/dev/null",
    }
    seen = variables(slurm.run("srun", "env", env=softgpu_env | forged))
    assert seen["COTENANT_CLASS"] == "standard"


def test_a_comment_that_asks_for_more_gets_nothing_and_the_job_runs(srun: Srun) -> None:
    seen = variables(srun("--comment", "cotenant class=production", "env"))
    assert "COTENANT_CLASS" not in seen and "LD_PRELOAD" not in seen


def test_the_output_of_a_job_is_its_own(srun: Srun) -> None:
    done = srun("echo", "hello")
    assert (done.returncode, done.stdout) == (0, "hello\n")
    assert srun("sh", "-c", "exit 7").returncode == 7


def test_where_it_is_required_a_task_that_cannot_share_fails(slurm: Slurm, srun: Srun) -> None:
    write_rules(slurm, "require = true")
    try:
        assert srun("--comment", "cotenant class=production", "echo", "hello").stdout == ""
        assert srun("echo", "hello").stdout == "hello\n"
    finally:
        write_rules(slurm)


def test_a_node_without_cotenant_runs_jobs_as_before(slurm: Slurm, srun: Srun) -> None:
    deploy_prolog(slurm.folder, slurm.folder / "nosuch", slurm.folder / "slurm.toml")
    try:
        assert "COTENANT_CLASS" not in variables(srun("env"))
    finally:
        deploy_prolog(slurm.folder, COTENANT, slurm.folder / "slurm.toml")


def test_jobs_of_two_nodes_are_tenants_and_their_tasks_one_run(
    slurm: Slurm, softgpu_env: dict[str, str], tmp_path: Path
) -> None:
    stop = tmp_path / "stop"
    guest = tmp_path / "guest.py"
    guest.write_text(GUEST.format(programs=PROGRAMS, stop=str(stop)))
    orders = (
        ("-J", "serve", "-p", "serving", "-w", "one"),
        ("-J", "train", "-N", "2", "-n", "2", "--comment", "cotenant class=opportunistic"),
    )
    jobs = [
        subprocess.Popen(
            slurm.command("srun", *order, sys.executable, str(guest)),
            env=slurm.environment(softgpu_env),
            stdout=subprocess.PIPE,
            text=True,
        )
        for order in orders
    ]
    try:
        for job, tasks in zip(jobs, (1, 2), strict=True):
            assert job.stdout is not None
            assert [job.stdout.readline() for _ in range(tasks)] == ["ready\n"] * tasks
        tenants = status(slurm, softgpu_env)
    finally:
        stop.touch()
        statuses = [job.wait(60) for job in jobs]
    assert statuses == [0, 0]
    found = sorted((tenant["class"], tenant["job"].partition(".")[0]) for tenant in tenants)
    assert found == [("opportunistic", "train"), ("opportunistic", "train"), ("production", "serve")]
    assert len({tenant["run_id"] for tenant in tenants}) == 2
    assert status(slurm, softgpu_env) == []


def status(slurm: Slurm, env: dict[str, str]) -> list[dict[str, str]]:
    done = subprocess.run(
        [COTENANT, "status", "-o", "json", "--segment", slurm.folder / "segment"],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    tenants: list[dict[str, str]] = json.loads(done.stdout)["tenants"]
    return tenants


def test_a_memory_limit_of_the_comment_holds(srun: Srun, tmp_path: Path) -> None:
    program = tmp_path / "allocate.py"
    program.write_text(ALLOCATE.format(programs=PROGRAMS))
    done = srun("--comment", "cotenant memory=256M", sys.executable, str(program))
    assert done.stdout.splitlines() == ["32 CUDA_SUCCESS", "512 CUDA_ERROR_OUT_OF_MEMORY"], done.stderr
