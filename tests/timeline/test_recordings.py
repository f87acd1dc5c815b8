"""The files of recordings that go on: of which segment they are, and what a killed one has left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cotenant.errors import Problem
from cotenant.timeline import recordings
from cotenant.timeline.recordings import Recording


def going_on(segment: str) -> list[int]:
    found = recordings.going_on(Path(segment))
    for _, file in found:
        os.close(file)
    return [one.pid for one, _ in found]


def test_a_recording_is_of_its_segment_and_goes_on_while_its_file_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recordings, "folder", lambda: tmp_path)
    first, second, elsewhere = (
        Recording(pid, segment, "out.json", ("0-ab",))
        for pid, segment in ((1, "/here"), (2, "/here"), (3, "/there"))
    )
    with recordings.registered(first), recordings.registered(elsewhere):
        left = tmp_path / "9.json"
        left.write_bytes((tmp_path / "1.json").read_bytes())  # nobody holds it any more
        assert going_on("/here") == [1] and not left.exists()
        assert not recordings.are_others(first) and not recordings.are_others(elsewhere)
        with recordings.registered(second):
            assert going_on("/here") == [1, 2] and recordings.are_others(first)
        assert going_on("/here") == [1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("told", "problem"),
    [
        ({"said": "out.json: 1 tenant"}, ""),
        ({"said": "the disk is full", "error": True}, "the disk is full"),
        (None, "the recording into out.json was killed"),
        (["said"], "was killed"),
    ],
)
def test_a_recording_that_has_ended_has_said_how_and_who_has_its_number_now_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: object, problem: str
) -> None:
    monkeypatch.setattr(recordings, "folder", lambda: tmp_path)
    with subprocess.Popen(["sleep", "60"]) as other:
        recording = Recording(other.pid, "/here", "out.json", ("0-ab" * 50,))
        (tmp_path / f"{other.pid}.new").write_text("of one that was killed")
        with recordings.registered(recording) as file:
            if told is not None:
                recordings.say(file, told)  # shorter than what was there
            [(found, held)] = recordings.going_on(Path("/here")) if told is None else [(recording, 0)]
            held = held or os.open(tmp_path / f"{other.pid}.json", os.O_RDONLY)
            assert found == recording
        try:
            if problem:
                with pytest.raises(Problem, match=problem):
                    recordings.stop(recording, held)
            else:
                assert recordings.stop(recording, held) == "out.json: 1 tenant"
            assert other.poll() is None
        finally:
            os.close(held)
            other.kill()
    assert list(tmp_path.iterdir()) == []


def test_a_recording_is_ended_by_a_signal_and_links_and_nonsense_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recordings, "folder", lambda: tmp_path)
    (tmp_path / "target").write_text("{}")
    (tmp_path / "1.json").symlink_to(tmp_path / "target")
    (tmp_path / "2.json").write_text("nonsense")
    assert going_on("/here") == []
    assert sorted(one.name for one in tmp_path.iterdir()) == ["1.json", "target"]
    script = (
        "import fcntl, sys, time; fcntl.flock(sys.stdin, fcntl.LOCK_EX); print(flush=True); time.sleep(60)"
    )
    path = tmp_path / "3.json"
    path.write_text('{"said": "done"}')
    with (
        path.open() as locked,
        path.open() as own,
        subprocess.Popen([sys.executable, "-c", script], stdin=locked, stdout=subprocess.PIPE) as child,
    ):
        locked.close()
        assert child.stdout and child.stdout.readline()
        recording = Recording(child.pid, "/here", "out.json", ())
        assert recordings.stop(recording, own.fileno()) == "done"
        assert child.wait() == -signal.SIGTERM


def test_a_folder_that_others_can_look_into_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "timelines"
    monkeypatch.setattr(recordings, "Path", lambda name: place)
    assert recordings.folder() == place and place.stat().st_mode & 0o777 == 0o700
    place.chmod(0o750)
    with pytest.raises(Problem, match="not a folder of yours alone"):
        recordings.folder()
