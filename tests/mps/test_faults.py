"""What goes wrong in MPS, and what a job notices of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cotenant import segment
from cotenant.mps import joining
from cotenant.mps.control import Control, NoMps
from cotenant.mps.keeper import Keeper, Kept
from cotenant.mps.place import Place, started
from cotenant.mps.sharing import is_production_in_mps
from tests.conftest import Run
from tests.mps.conftest import Job, Mps, Start
from tests.segments import Written
from tests.waiting import wait_for

Look = Callable[[Job], segment.Tenant]


def test_without_a_control_program_spatial_takes_turns_and_says_so(
    cotenant: Run, mps_env: dict[str, str], tmp_path: Path
) -> None:
    env = mps_env | {"PATH": os.defpath}
    done = cotenant("run", "--share", "spatial", "--", "true", env=env)
    assert done.returncode == 0
    assert "no overlap: nvidia-cuda-mps-control is not installed: taking turns" in done.stderr
    done = cotenant("run", "--share", "spatial", "--require", "--", "true", env=env)
    assert done.returncode == 1 and done.stderr.startswith("error: no overlap")
    assert cotenant("run", "--require", "--", "true", env=env).stderr == ""


def test_a_daemon_that_fails_to_start_or_hangs_costs_the_job_nothing_but_overlap(
    cotenant: Run, mps: Mps, mps_env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = cotenant(
        "run", "--share", "spatial", "--", "echo", "ran", env=mps_env | {"MPS_STAND_IN": "refuse"}
    )
    assert done.stdout == "ran\n"
    assert "An instance of this daemon is already running: taking turns" in done.stderr
    monkeypatch.setattr("cotenant.mps.control.START_SECONDS", 0.3)
    monkeypatch.setenv("MPS_STAND_IN", "hang")
    with pytest.raises(NoMps, match="did not come back"):
        Place(mps.folder).begin(mps.program, os.environ)
    mps.wait_until_gone()


def test_a_server_that_is_killed_is_told_to_its_jobs_and_new_jobs_get_another_daemon(
    start: Start, tenant: Look, mps: Mps, cotenant: Run, mps_env: dict[str, str]
) -> None:
    touched = start("--share", "spatial").begin()
    first = mps.place.current
    assert first is not None
    (server,) = mps.control.servers()
    os.kill(server, signal.SIGKILL)
    wait_for(lambda: int(touched.say("timed 100")) < 0)
    wait_for(lambda: mps.place.current not in (None, first))
    assert "has failed" in first.trouble or "has ended" in first.trouble
    new = start("--share", "spatial").begin()
    assert int(new.say("timed 100")) >= 100
    wait_for(lambda: tenant(touched).mps_fault == 806)
    assert tenant(new).mps_daemon != tenant(touched).mps_daemon
    said = cotenant("explain", str(touched.pid), env=mps_env).stdout
    assert "has failed (CUDA error 806): start the job again" in said
    status, errors = touched.end()
    assert status == 0, "what the program does with the error is its own affair"
    assert errors.count("cotenant: the MPS server of this job has failed (CUDA error 806)") == 1
    # The first daemon goes with its last job, the second stays.
    wait_for(lambda: not first.folder.exists())
    assert int(new.say("timed 100")) >= 100


def test_a_control_daemon_that_is_killed_is_replaced_while_its_server_goes_on(start: Start, mps: Mps) -> None:
    job = start("--share", "spatial").begin()
    first = mps.place.current
    assert first is not None and mps.control.pid is not None
    wait_for(mps.place.has_keeper)
    os.kill(mps.control.pid, signal.SIGKILL)
    wait_for(lambda: mps.place.current not in (None, first))
    assert start("--share", "spatial").begin().say("mps") == "1"
    job.kill(signal.SIGKILL)


def test_a_pipe_folder_that_was_left_behind_is_no_daemon(start: Start, mps: Mps) -> None:
    stale = mps.folder.parent / "stale"
    stale.mkdir()
    (stale / "control").touch()
    job = start("--share", "spatial", env={"CUDA_MPS_PIPE_DIRECTORY": str(stale)}).begin()
    assert job.say("mps") == "1"
    assert mps.place.current is not None


def test_a_daemon_of_another_user_is_not_used(
    mps: Mps, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "control").touch()
    monkeypatch.setattr(Control, "is_answering", lambda self: True)
    environment = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}
    assert joining.find_running(environment, mps.program) is not None
    monkeypatch.setattr(joining, "OWNERS", (os.stat(tmp_path).st_uid + 1,))
    assert joining.find_running(environment, mps.program) is None


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o705])
def test_a_folder_that_is_open_to_others_is_refused(mps: Mps, mode: int) -> None:
    mps.folder.mkdir(mode=0o700)
    mps.folder.chmod(mode)
    with pytest.raises(NoMps, match="no folder of this user's alone"):
        mps.place.make()


def test_a_path_that_is_too_long_for_a_socket_is_refused() -> None:
    with pytest.raises(NoMps, match="too long"):
        Place(Path("/tmp") / ("x" * 100)).make()


def test_the_runtime_folder_is_used_unless_its_path_is_too_long(tmp_path: Path) -> None:
    from cotenant.mps.place import find_folder

    short = Path("/tmp")
    assert find_folder({"XDG_RUNTIME_DIR": str(short)}) == short / "cotenant-mps"
    long = tmp_path / ("x" * 80)
    long.mkdir()
    assert find_folder({"XDG_RUNTIME_DIR": str(long)}) == Path(f"/tmp/cotenant-mps-{os.getuid()}")


def test_a_process_that_has_a_servers_number_by_now_is_not_killed(mps: Mps) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as stranger:
        Control(mps.program, mps.folder / "pipe").kill((stranger.pid,))
        said, _ = stranger.communicate("alive", timeout=60)
        assert (said, stranger.returncode) == ("alive", 0)


def test_a_process_that_has_ended_unreaped_has_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    try:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert started(child.pid) is None
    finally:
        child.wait()


@pytest.mark.parametrize(
    ("differs", "is_company"),
    [
        ({}, True),
        ({"mps_fault": 806}, False),
        ({"mps_daemon": 0}, False),
        ({"tenant_class": 1}, False),
        ({"uid": os.getuid() + 1}, False),
    ],
)
def test_only_production_that_works_in_mps_is_company_for_the_next_job(
    mps: Mps, tmp_path: Path, differs: dict[str, int], is_company: bool
) -> None:
    environment = {"COTENANT_MPS_DIR": str(mps.folder)}
    mps.place.make()
    mps.place.set_current(mps.place.generation(1))
    written = Written()
    one = written.tenant(3, pid=100, tenant_class=0)
    for name, value in {"uid": os.getuid(), "mps_daemon": 77, **differs}.items():
        setattr(one, name, value)
    assert is_production_in_mps(environment, written.to(tmp_path / "segment")) is is_company


def test_nobody_joins_a_daemon_that_failed_when_its_last_job_had_gone(mps: Mps) -> None:
    mps.place.make()
    failed = mps.place.generation(1)
    failed.make()
    mps.place.set_current(failed)
    Keeper(mps.place, mps.program, 0).replace(Kept(failed, mps.program), "its server 7 has ended")
    assert mps.place.current is None and mps.place.generations() == [failed]
    assert failed.trouble == "its server 7 has ended"


def test_the_users_own_daemon_is_none_that_was_there_already(
    mps: Mps, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = mps.place.generation(1)
    mps.place.make()
    own.make()
    (own.pipe / "control").touch()
    monkeypatch.setattr(Control, "is_answering", lambda self: True)
    environment = {"CUDA_MPS_PIPE_DIRECTORY": str(own.pipe), "COTENANT_MPS_DIR": str(mps.folder)}
    assert joining.find_running(environment, mps.program) is None
    environment["COTENANT_MPS_DIR"] = str(mps.folder.parent)
    assert joining.find_running(environment, mps.program) is not None
