"""Processes that use a GPU and are no tenants of its segment: `explain`, `status` and figures name them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from cotenant import segment
from cotenant.daemon.attachment import OUTSIDERS_SECONDS, Attachment
from cotenant.daemon.clocks import Reading
from cotenant.daemon.loop import Daemon
from cotenant.gpus import outsiders, states
from cotenant.gpus.outsiders import Outsider
from cotenant.segment import pids
from tests.conftest import REAL_GPU
from tests.daemon.made import BUSY, COTENANT
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.conftest import Run

TRAIN, NOTEBOOK, SERVER, OTHER, ENDED, TENANT, LANE = 11, 12, 13, 14, 15, 20, 21


@pytest.fixture(autouse=True)
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "cotenant" in request.fixturenames:
        return
    about = {
        TRAIN: ("python3", "python3\0-u\0train.py\0", "/usr/lib/libcuda.so.1"),
        NOTEBOOK: ("jupyter", "", None),  # another user's: its maps may not be read
        SERVER: ("nvidia-cuda-mps", "nvidia-cuda-mps-server\0", "/usr/lib/libcuda.so.1"),
        OTHER: ("python3", "python3\0serve.py\0", "/opt/lib/cotenant/native/shim/libcuda.so.1"),
    }
    for pid, (comm, words, mapped) in about.items():
        place = tmp_path / str(pid)
        place.mkdir()
        (place / "stat").write_text(f"{pid} ({comm}) S{' 0' * 18} 77\n")
        (place / "comm").write_text(f"{comm}\n")
        (place / "cmdline").write_text(words)
        if mapped:
            (place / "maps").write_text(f"7f00-7f01 r-xp 0 00:00 1   {mapped}\n")
    monkeypatch.setattr(outsiders, "PROC", tmp_path)
    monkeypatch.setattr(pids, "PROC", tmp_path)


def tenants(**changed: Any) -> Any:
    about = {"pid": TENANT, "process": TENANT, "is_here": True} | changed
    return [SimpleNamespace(**about)]


def test_whoever_is_on_the_gpu_and_is_no_tenant() -> None:
    processes = [TRAIN, NOTEBOOK, SERVER, OTHER, ENDED, TENANT]
    assert outsiders.among(processes, tenants()) == (
        Outsider(TRAIN, "train.py", False),
        Outsider(NOTEBOOK, "jupyter", False),
        Outsider(OTHER, "serve.py", True),
    )
    assert outsiders.among([TENANT], tenants()) == ()


@pytest.mark.parametrize(
    "there",
    [[], tenants(is_here=False), tenants(pid=99, process=99)],
    ids=["no tenant", "one in a container beside ours", "other numbers"],
)
def test_where_nvml_lists_no_tenant_by_its_number_nothing_is_known(there: Any) -> None:
    """It numbers processes as the host does, and we may be in a container: 11 is somebody else here."""
    assert outsiders.among([TRAIN, TENANT], there) is None
    told = states.outside(Reading(processes=(TRAIN, TENANT)), there)
    assert told == {"outsiders": None, "outsider_pids": None, "outside_in_words": []}


def test_a_lane_is_in_its_process() -> None:
    assert outsiders.among([TENANT], tenants(pid=LANE)) == ()


def test_each_kind_in_a_sentence_of_its_own() -> None:
    told = states.outside(Reading(processes=(TRAIN, OTHER, TENANT)), tenants())
    assert (told["outsiders"], told["outsider_pids"]) == (2, [TRAIN, OTHER])
    assert told["outside_in_words"] == [
        "is also used without Cotenant by train.py (11): no class holds there; `cotenant run` starts tenants",
        "is also used by serve.py (14), no tenant of this segment: classes hold within one segment only",
    ]
    crowd = [Outsider(pid, "burn", False) for pid in range(6)]
    [line] = outsiders.in_words(crowd)
    assert "by burn (0), burn (1), burn (2), burn (3) and 2 more: no class" in line


def test_the_daemon_tells_the_tenants_of_those_that_use_sms(attachment: Attachment) -> None:
    """By a moment that runs out by itself; each list is weighed once."""
    one = Daemon(attachment, "guard", 10)
    gpu = attachment.header.gpus[0]

    def until_s(*processes: int, working: int = TRAIN) -> float:
        one.readings = {0: Reading(processes=processes, working=frozenset([working]))}
        one.weigh_processes()
        return float(gpu.outsiders_until_ns - segment.now_ns()) / 1e9

    first, second = (number.pid for number in segment.read(attachment.path).tenants)
    assert until_s(first, second) < 0
    assert 10 < until_s(TRAIN, first) <= OUTSIDERS_SECONDS
    gpu.outsiders_until_ns = 0
    one.weigh_processes()
    assert gpu.outsiders_until_ns == 0
    assert until_s(TRAIN, NOTEBOOK, first) > 10
    assert until_s(TRAIN, first, working=first) < 0
    assert until_s() < 0  # NVML does not say


@pytest.mark.skipif(REAL_GPU, reason="launches kernels of the software GPU")
def test_a_job_without_cotenant_is_named_by_explain_and_status(
    cotenant: Run, env: dict[str, str], tmp_path: Path
) -> None:
    pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    program = tmp_path / "busy.py"
    program.write_text(BUSY)
    run = [*COTENANT, "run", "--require", "--class", "production", sys.executable, str(program)]
    with subprocess.Popen(run, env=env, stdin=subprocess.PIPE) as job:
        try:

            def outside() -> Any:
                done = cotenant("status", "-o", "json", env=env)
                seen = json.loads(done.stdout)["gpus"] if done.returncode == 0 else []
                return seen[0]["outsider_pids"] if seen else None

            wait_for(lambda: outside() == [])
            assert "also used" not in cotenant("status", env=env).stderr
            with subprocess.Popen([sys.executable, program], env=env, stdin=subprocess.PIPE) as other:
                try:
                    wait_for(lambda: outside() == [other.pid])
                    line = (
                        f"GPU 0 is also used without Cotenant by busy.py ({other.pid}): no class holds there"
                    )
                    assert line in cotenant("explain", str(job.pid), env=env).stdout
                    shown = cotenant("status", env=env)
                    assert line in shown.stderr and "also used" not in shown.stdout
                    assert "cotenant_gpu_outsiders" in cotenant("metrics", env=env).stdout
                finally:
                    other.communicate(b"", timeout=60)
            # WHEN a job of another segment comes, THEN it is called that
            elsewhere = env | {"COTENANT_SEGMENT": str(tmp_path / "elsewhere"), "COTENANT_NO_DAEMON": "1"}
            with subprocess.Popen(run, env=elsewhere, stdin=subprocess.PIPE) as other:
                try:
                    wait_for(lambda: outside() == [other.pid])
                    line = f"GPU 0 is also used by busy.py ({other.pid}), no tenant of this segment"
                    assert line in cotenant("status", env=env).stderr
                finally:
                    other.communicate(b"", timeout=60)
            wait_for(lambda: outside() == [])
        finally:
            job.communicate(b"", timeout=60)
    assert (job.returncode, other.returncode) == (0, 0)
