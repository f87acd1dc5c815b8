"""The daemon's files in a folder where everybody may write: what was planted there is neither followed nor believed."""

from __future__ import annotations

import fcntl
import json
import math
import os
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from cotenant.commands import daemon as daemon_command
from cotenant.daemon import control, files, lock, report
from cotenant.daemon.clocks import Reading
from cotenant.errors import Problem
from cotenant.policies.interface import GpuState
from cotenant.tenants import looking
from cotenant.tenants.verdicts import Verdict

if TYPE_CHECKING:
    from tests.conftest import Run

STRANGER = 54321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
PRECIOUS = b"precious"
Plant = Callable[[Path], str]


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    file = tmp_path / "precious"
    file.write_bytes(PRECIOUS)
    return file


@pytest.mark.parametrize("ending", ["", ".new"])
def test_a_report_is_not_written_through_a_planted_link(path: Path, precious: Path, ending: str) -> None:
    planted = Path(f"{report.file_for(path)}{ending}")
    planted.symlink_to(precious)
    report.Report(path).show("guard", "", {(1, 2, 0): ["Said."]})
    assert precious.read_bytes() == PRECIOUS
    shown = report.read(path)
    assert shown is not None and shown.tenants[0].decisions[0].text == "Said."
    assert not report.file_for(path).is_symlink()


def test_its_files_are_for_nobody_else(path: Path) -> None:
    before = os.umask(0)
    try:
        held = lock.acquire(path)
        report.Report(path).show("guard", "", {})
    finally:
        os.umask(before)
    assert held is not None
    for file in (lock.file_for(path), report.file_for(path)):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    lock.release(path, held)


def plant_link(file: Path) -> str:
    file.symlink_to("/etc/passwd")
    return "is a link"


def plant_pipe(file: Path) -> str:
    os.mkfifo(file)
    return "is no regular file"


def plant_folder(file: Path) -> str:
    file.mkdir()
    return "is no regular file"


def plant_strangers(file: Path) -> str:
    file.touch(0o600)
    os.chown(file, STRANGER, STRANGER)
    return f"belongs to user {STRANGER}"


PLANTERS = [plant_link, plant_pipe, plant_folder, pytest.param(plant_strangers, marks=as_root)]


@pytest.mark.parametrize("plant", PLANTERS)
def test_a_planted_lock_is_one_line_with_its_remedy(
    cotenant: Run, path: Path, plain_env: dict[str, str], plant: Plant
) -> None:
    what = plant(lock.file_for(path))
    done = cotenant("daemon", env=plain_env)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"error: {lock.file_for(path)} {what}",
        "hint: have it removed, or name another segment with --segment",
    ]


@as_root
def test_a_lock_that_was_removed_while_it_was_taken_is_taken_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else two daemons would each hold one: the daemon that ended removes the file, and the next makes another."""
    flock = fcntl.flock
    removed: list[int] = []

    def flock_late(file: int, how: int) -> None:
        flock(file, how)
        if not removed and lock.file_for(path).exists():
            lock.file_for(path).unlink()
            removed.append(file)

    monkeypatch.setattr(fcntl, "flock", flock_late)
    held = lock.acquire(path)
    assert held is not None and removed
    assert os.path.samestat(os.fstat(held), lock.file_for(path).stat())
    lock.release(path, held)


@pytest.mark.parametrize(
    ("moment", "is_old_alive"), [("ftruncate", False), ("unlink", True), ("release", True)]
)
def test_of_several_daemons_that_start_after_the_segment_was_replaced_one_has_the_lock(
    path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, is_old_alive: bool
) -> None:
    """Another starts at the moment between what the first one looks at and what it makes of that."""
    lock.file_for(path).write_bytes(b"1 1\n")
    old = os.open(lock.file_for(path), os.O_RDWR)
    if is_old_alive:
        fcntl.flock(old, fcntl.LOCK_EX)
    waits_or_done = threading.Event()
    found: list[int | None] = []

    def start() -> None:
        try:
            found.append(lock.acquire(path))
        finally:
            waits_or_done.set()

    other = threading.Thread(target=start)
    flock = fcntl.flock

    def flock_told(file: int, how: int) -> None:
        if threading.current_thread() is other and not how & fcntl.LOCK_NB:
            waits_or_done.set()
        flock(file, how)

    def meanwhile(of: object, name: str) -> None:
        do = getattr(of, name)

        def done_late(what: object, *more: object, **named: object) -> object:
            if not other.ident and what != lock.file_for(path).with_name(f"{lock.file_for(path).name}.turn"):
                other.start()
                waits_or_done.wait()
            return do(what, *more, **named)

        monkeypatch.setattr(of, name, done_late)

    monkeypatch.setattr(fcntl, "flock", flock_told)
    meanwhile(*((os, "ftruncate") if moment == "ftruncate" else (Path, "unlink")))
    if moment == "release":
        lock.release(path, old)
    else:
        found.append(lock.acquire(path))
    other.join()
    (held,) = [one for one in found if one is not None]
    assert os.path.samestat(os.fstat(held), lock.file_for(path).stat()) and lock.is_held(path)
    lock.release(path, held)
    assert not list(path.parent.glob("*.lock*"))
    if moment != "release":
        os.close(old)


def test_what_a_killed_daemon_has_left_in_the_lock_is_nobodys(path: Path) -> None:
    """Else the lock would seem to be another segment's, and the segment would get a second daemon."""
    lock.file_for(path).write_bytes(
        lock.identity(path).strip() + b"00000 of a segment with a longer number\n"
    )
    held = lock.acquire(path)
    assert held is not None and lock.is_held(path) and lock.acquire(path) is None
    lock.release(path, held)


def test_each_gpu_is_reported_with_those_who_work_on_it(path: Path) -> None:
    clocks = {(100, 7, 0): 1980.0, (200, 7, 1): 1500.0}
    readings = {0: Reading(), 1: Reading(problem="lost")}
    report.Report(path).show("guard", "", {}, readings, clocks)
    shown = report.read(path)
    assert shown is not None and (shown.clocks, shown.gpus) == (clocks, readings)


def test_verdicts_of_a_daemon_that_was_killed_count_no_more(path: Path) -> None:
    verdicts = {(100, 7, 0): Verdict(False, 5)}
    report.Report(path).show("guard", "", {}, promises=verdicts)
    held = lock.acquire(path)
    assert held is not None and looking.verdicts(path) == verdicts
    lock.release(path, held)
    assert report.read(path) is not None and looking.verdicts(path) == {}


def test_run_says_that_a_planted_lock_keeps_the_daemon_away(cotenant: Run, env: dict[str, str]) -> None:
    path = Path(env["COTENANT_SEGMENT"])
    what = plant_strangers(lock.file_for(path))
    done = cotenant("run", "--", "echo", "ran", env=env)
    assert (done.returncode, done.stdout) == (0, "ran\n")
    (line,) = done.stderr.splitlines()
    assert "no daemon runs for" in line and what in line and "hint: have it removed" in line


@as_root
def test_run_says_that_a_planted_report_keeps_the_daemon_from_telling(
    cotenant: Run, env: dict[str, str]
) -> None:
    path = Path(env["COTENANT_SEGMENT"])
    what = plant_strangers(files.new(report.file_for(path)))
    done = cotenant("run", "--", "true", env=env)
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert "cannot write its report" in line and what in line and "hint: have it removed" in line


@pytest.mark.parametrize("plant", PLANTERS)
def test_a_planted_report_is_not_believed(path: Path, plant: Plant) -> None:
    plant(report.file_for(path))
    with pytest.raises(Problem):
        report.read(path)


@as_root
def test_explain_says_whose_a_planted_report_is(cotenant: Run, path: Path, plain_env: dict[str, str]) -> None:
    content = {"pid": 1, "policy": "evil", "since": 0, "problem": "\x1b]0;pwned\x07", "tenants": []}
    file = report.file_for(path)
    file.write_text(json.dumps(content))
    os.chown(file, STRANGER, STRANGER)
    held = lock.acquire(path)
    assert held is not None
    try:
        done = cotenant("explain", "100", env=plain_env)
    finally:
        lock.release(path, held)
    assert done.returncode == 0 and "evil" not in done.stdout
    assert f"belongs to user {STRANGER}" in done.stdout and "have it removed" in done.stdout


@as_root
def test_the_segments_owner_is_believed(path: Path) -> None:
    """An administrator's daemon, as the users see it."""
    report.Report(path).show("guard", "", {})
    for file in (path, report.file_for(path)):
        os.chown(file, STRANGER, STRANGER)
    assert report.read(path) is not None


@pytest.mark.parametrize(
    "change",
    [
        {"pid": "1"},
        {"policy": None},
        {"problem": 3},
        {"tenants": {"a": 1}},
        {"tenants": [{"pid": 1}]},
        {"tenants": [{"pid": 1, "started": 1, "gpu": 0, "decisions": [{"at": "x", "text": "y"}]}]},
        {"tenants": [{"pid": 1, "started": 1, "gpu": 0, "decisions": [{"at": 1e300, "text": "y"}]}]},
        {"tenants": [{"pid": 1, "started": 1, "gpu": 0, "decisions": [{"at": 2**40, "text": "y"}]}]},
        {"tenants": [{"pid": 1, "started": 1, "gpu": 0, "decisions": [{"at": 1, "text": ["y"]}]}]},
        {"tenants": [{"pid": True, "started": 1, "gpu": 0, "decisions": []}]},
    ],
)
def test_a_report_of_another_shape_is_none(path: Path, change: dict[str, object]) -> None:
    about = {"pid": 1, "started": 1, "gpu": 0, "decisions": [{"at": 5, "text": "y"}]}
    good = {"pid": 1, "policy": "guard", "problem": "", "tenants": [about]}
    report.file_for(path).write_text(json.dumps(good))
    assert report.read(path) is not None
    report.file_for(path).write_text(json.dumps(good | change))
    assert report.read(path) is None


def test_who_only_looks_for_an_instant_keeps_no_daemon_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "segment"
    looker = os.open(lock.file_for(path), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(looker, fcntl.LOCK_SH)
    monkeypatch.setattr(lock, "PATIENCE_SECONDS", 3600)
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: os.close(looker))
    monkeypatch.setattr(lock, "time", clock)
    held = lock.acquire(path)
    assert held is not None
    lock.release(path, held)


@pytest.mark.parametrize(("locks", "sent"), [([7], 0), ([None, None, 7], 1), ([None] * 9, 1)])
def test_a_daemon_that_holds_the_lock_is_asked_once_to_hand_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locks: list[int | None], sent: int
) -> None:
    messages: list[object] = []
    monkeypatch.setattr(lock, "acquire", lambda _: locks.pop(0))
    monkeypatch.setattr(control, "send", lambda _, message: messages.append(message))
    is_stuck = locks[-1] is None
    monkeypatch.setattr(daemon_command, "TAKEOVER_SECONDS", 0 if is_stuck else 3600)
    if is_stuck:
        with pytest.raises(Problem, match="does not end"):
            daemon_command.taken_over(tmp_path)
    else:
        assert daemon_command.taken_over(tmp_path) == 7
    assert messages == [{"do": "hand over"}] * sent


def test_clocks_alone_are_written_once_in_a_while(tmp_path: Path) -> None:
    shown = report.Report(tmp_path / "segment")

    def mhz(value: float) -> float | None:
        shown.show("guard", "", {}, {0: Reading(GpuState(1.0, value))})
        there = report.read(tmp_path / "segment")
        assert there is not None and there.gpus[0].state is not None
        return there.gpus[0].state.clock_mhz

    assert mhz(1000) == 1000
    assert shown.next_gpus > 0
    shown.next_gpus = math.inf
    assert mhz(1100) == 1000
    shown.next_gpus = 0.0
    assert mhz(1200) == 1200
