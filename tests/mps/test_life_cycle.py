"""`cotenant run --share spatial` and the user's own MPS daemon, from its start to its end."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

from cotenant import segment
from cotenant.mps.control import Control, is_of_mps
from tests.conftest import Run
from tests.mps.conftest import Job, Mps, Start, processes_naming
from tests.waiting import wait_for

Look = Callable[[Job], segment.Tenant]


def setting(job: Job, name: str) -> str | None:
    environment = Path(f"/proc/{job.pid}/environ").read_bytes().split(b"\0")
    return next(
        (one.partition(b"=")[2].decode() for one in environment if one.startswith(f"{name}=".encode())), None
    )


def test_two_jobs_overlap_in_a_daemon_that_starts_with_the_first_and_stops_with_the_last(
    start: Start, tenant: Look, mps: Mps
) -> None:
    production = start("--share", "spatial", "--class", "production").begin()
    # Half of the SMs for a minute: beside it the other half is free.
    assert production.say("start 60000000") == "0"
    other = start("--share", "spatial", "--class", "production").begin()
    assert other.say("mps") == "1"
    assert int(other.say("timed 50000")) < 51000, "the kernel had its SMs to itself all the time"
    assert tenant(other).mps_daemon == tenant(production).mps_daemon != 0
    assert len(mps.control.servers()) == 1
    assert other.end()[0] == 0
    assert mps.place.current is not None
    production.kill(signal.SIGKILL)
    mps.wait_until_gone()


def test_a_job_that_takes_turns_has_contexts_of_its_own(start: Start, tenant: Look, mps: Mps) -> None:
    for options in (("--share", "turns"), ("--isolate",), ()):
        job = start(*options).begin()
        assert job.say("mps") == "0"
        assert tenant(job).mps_daemon == 0
    assert not mps.folder.exists()


def test_class_sms_and_memory_become_settings_of_the_client(start: Start) -> None:
    production = start("--share", "spatial", "--class", "production").begin()
    assert setting(production, "CUDA_MPS_CLIENT_PRIORITY") == "0"
    assert setting(production, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") is None
    other = start("--share", "spatial", "--class", "opportunistic", "--memory", "100M").begin()
    assert setting(other, "CUDA_MPS_CLIENT_PRIORITY") == "1"
    assert setting(other, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") is None
    assert setting(other, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT") == "0=100M"
    held = start("--share", "spatial", "--sms", "25%").begin()
    assert setting(held, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") == "25"
    # A quarter of 8 SMs for a kernel that asks for 4: it takes twice as long.
    assert int(held.say("timed 10000")) >= 20000


def test_a_daemon_that_is_there_already_is_used_and_left_alone(
    start: Start, tenant: Look, mps: Mps, mps_env: dict[str, str], tmp_path: Path
) -> None:
    theirs = mps.folder.parent / "theirs"
    theirs.mkdir()
    control = Control(mps.program, theirs, tmp_path)
    control.start(mps_env)
    try:
        job = start("--share", "spatial", env={"CUDA_MPS_PIPE_DIRECTORY": str(theirs)}).begin()
        assert job.say("mps") == "1"
        assert not mps.folder.exists()
        # Who takes turns there is still in it, and says so; who is isolated is not.
        turns = start("--share", "turns", env={"CUDA_MPS_PIPE_DIRECTORY": str(theirs)}).begin()
        assert tenant(turns).mps_daemon == tenant(job).mps_daemon != 0
        isolated = start("--isolate", env={"CUDA_MPS_PIPE_DIRECTORY": str(theirs)}).begin()
        assert isolated.say("mps") == "0"
        for one in (job, turns, isolated):
            one.kill(signal.SIGKILL)
        assert control.is_answering()
    finally:
        control.stop()
    assert control.pid is None


def test_two_runs_that_start_at_once_share_one_daemon(start: Start, tenant: Look, mps: Mps) -> None:
    jobs = [start("--share", "spatial") for _ in range(3)]
    assert len({tenant(job.begin()).mps_daemon for job in jobs}) == 1
    assert len(mps.place.generations()) == 1


def test_a_job_that_goes_on_in_the_background_keeps_the_daemon(
    mps: Mps, mps_env: dict[str, str], job_program: Path, cotenant: Run
) -> None:
    pipe = mps.folder.parent / "orders"
    os.mkfifo(pipe)
    script = f"{{ exec >/dev/null 2>&1; exec {job_program} <{pipe}; }} &"
    done = cotenant("run", "--share", "spatial", "--", "sh", "-c", script, env=mps_env)
    assert done.returncode == 0
    with pipe.open("w"):
        mps.wait_for_a_server()
    mps.wait_until_gone()


def test_a_keeper_that_is_killed_is_replaced_by_the_next_run(start: Start, tenant: Look, mps: Mps) -> None:
    first = start("--share", "spatial").begin()
    wait_for(mps.place.has_keeper)
    for pid in processes_naming(mps.folder):
        if b"cotenant.mps.keeper" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not mps.place.has_keeper())
    second = start("--share", "spatial").begin()
    assert tenant(first).mps_daemon == tenant(second).mps_daemon
    for one in (first, second):
        one.kill(signal.SIGKILL)
    mps.wait_until_gone()


def test_a_folder_that_somebody_removes_leaves_no_process_behind(start: Start, mps: Mps) -> None:
    job = start("--share", "spatial").begin()
    wait_for(mps.place.has_keeper)
    daemon, (server,) = mps.control.pid, mps.control.servers()
    assert daemon is not None
    # After us the keeper has asked, too.
    (log,) = mps.folder.glob("*/log/control.log")
    wait_for(lambda: log.read_text().count("Cmd:get_server_list") > 1)

    def is_removed() -> bool:
        # The keeper may be writing there.
        shutil.rmtree(mps.folder, ignore_errors=True)
        return not mps.folder.exists()

    wait_for(is_removed)
    assert int(job.say("timed 100")) >= 100, "its job goes on"
    job.end()
    wait_for(lambda: not is_of_mps(daemon) and not is_of_mps(server) and not processes_naming(mps.folder))
