"""The keeper of MPS daemons and their folders, without a GPU: who counts as a job, what ends and what stays."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from cotenant.gpus import nvml
from cotenant.mps import joining, sharing
from cotenant.mps import place as places
from cotenant.mps.control import PROGRAM, NoMps
from cotenant.mps.keeper import Keeper, Kept
from cotenant.mps.place import Generation, Place, started


@pytest.fixture
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="cotenant-mps-") as folder:
        made = Place(Path(folder))
        made.make()
        yield made


def program(folder: Path, code: str) -> str:
    """A stand-in for the control program."""
    file = folder / PROGRAM
    file.write_text(f"#!/bin/sh\n{code}\n")
    file.chmod(0o755)
    return str(file)


def begun(place: Place, number: int, keeper: Keeper) -> Generation:
    made = place.generation(number)
    made.make()
    keeper.kept[made] = Kept(made, keeper.program)
    return made


def test_a_number_that_another_process_has_now_is_no_job(place: Place) -> None:
    one = place.generation(1)
    one.make()
    one.enter(os.getpid())
    for left in (f"{os.getpid()}.1", "4194303.7", "junk"):
        (one.jobs / left).touch()
    assert one.members() == [os.getpid()]
    assert [file.name for file in one.jobs.iterdir()] == [f"{os.getpid()}.{started(os.getpid())}"]


def test_a_daemon_that_does_not_start_leaves_nothing_and_the_next_one_begins(
    place: Place, tmp_path: Path
) -> None:
    with pytest.raises(NoMps, match="no GPU today"):
        place.begin(program(tmp_path, "echo no GPU today; exit 1"), os.environ)
    assert place.generations() == [] and place.current is None
    made = place.begin(program(tmp_path, "exit 0"), os.environ)
    assert place.generations() == [made] and place.current == made


def test_a_daemon_serves_all_gpus_whichever_the_first_job_sees(place: Place, tmp_path: Path) -> None:
    environment = os.environ | {
        "CUDA_VISIBLE_DEVICES": "1",
        "LD_PRELOAD": "",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50",
    }
    made = place.begin(program(tmp_path, f"env > {tmp_path}/seen"), environment)
    seen = dict(line.split("=", 1) for line in (tmp_path / "seen").read_text().splitlines() if "=" in line)
    assert not {"CUDA_VISIBLE_DEVICES", "LD_PRELOAD", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"} & seen.keys()
    assert seen["CUDA_MPS_PIPE_DIRECTORY"] == str(made.pipe)


def test_an_old_daemon_ends_without_its_jobs_and_leaves_the_new_one(place: Place, tmp_path: Path) -> None:
    keeper = Keeper(place, program(tmp_path, "exit 0"), 0)
    old, new = begun(place, 1, keeper), begun(place, 2, keeper)
    place.set_current(new)
    old.enter(os.getpid())  # it has come through the door just now
    keeper.end(keeper.kept[old])
    assert old in keeper.kept and old.folder.is_dir()
    (old.jobs / f"{os.getpid()}.{started(os.getpid())}").unlink()
    keeper.end(keeper.kept[old])
    assert not old.folder.exists() and list(keeper.kept) == [new] and place.current == new
    lock = place.become_keeper()
    assert lock is not None and not keeper.is_over(lock) and place.has_keeper()
    keeper.end(keeper.kept[new])
    assert keeper.is_over(lock) and not place.has_keeper()
    assert not (place.folder / "current").exists()


def test_a_server_whose_number_is_another_processs_has_ended(place: Place) -> None:
    one = place.generation(1)
    one.make()
    kept = Kept(one, "/bin/true")
    kept.servers[os.getpid()] = 1
    assert kept.look() == f"its server {os.getpid()} has ended"
    kept.servers[os.getpid()] = started(os.getpid())
    assert kept.look() == "its control daemon has ended"


def test_an_isolated_job_has_no_setting_of_mps_left() -> None:
    environment = {"PATH": "/bin", **dict.fromkeys(joining.OF_A_CLIENT, "50")}
    joining.isolate(environment)
    assert environment == {"PATH": "/bin", "CUDA_MPS_PIPE_DIRECTORY": joining.NO_DAEMON}


@pytest.mark.parametrize(
    ("memory", "visible", "limits"),
    [
        ("50%", None, "0=10240M,1=10240M"),  # of the largest: none is refused too soon
        ("50%", "1", "0=10240M"),
        ("1G", None, "0=1024M,1=1024M"),
        ("1048577", "", "0=2M"),
    ],
)
def test_a_memory_limit_is_for_each_gpu_that_the_job_sees(
    monkeypatch: pytest.MonkeyPatch, memory: str, visible: str | None, limits: str
) -> None:
    gpus = [nvml.Gpu(at, f"GPU-{at}", "", "small", size << 30) for at, size in enumerate((10, 20))]
    monkeypatch.setattr(nvml, "installed", lambda driver: gpus)
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert sharing.memory_limits(environment, memory) == limits


def test_who_finds_the_door_locked_waits_and_not_for_ever(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock of the test's own."""
    now = [100.0]
    other = os.open(place.folder / "door", os.O_RDWR | os.O_CREAT, 0o600)

    def sleep(seconds: float) -> None:
        now[0] += 1
        if now[0] == 102:
            os.close(other)

    monkeypatch.setattr(places, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    assert places.lock(other)
    with place.door():
        assert now[0] == 102
        with pytest.raises(NoMps, match="has been locked for"), place.door():
            pytest.fail("two are in the door")
        assert places.DOOR_SECONDS < now[0] - 102 < places.DOOR_SECONDS + 2


def test_who_asks_for_a_keeper_does_not_become_one(place: Place) -> None:
    assert not place.has_keeper() and not place.has_keeper()
    keeper = place.become_keeper()
    assert keeper is not None and place.has_keeper() and place.become_keeper() is None
    os.close(keeper)
    assert not place.has_keeper()
