"""The files of recordings that go on: of which segment they are, and what a killed one has left."""

from __future__ import annotations

import os
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


def test_a_folder_that_others_can_look_into_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "timelines"
    monkeypatch.setattr(recordings, "Path", lambda name: place)
    assert recordings.folder() == place and place.stat().st_mode & 0o777 == 0o700
    place.chmod(0o750)
    with pytest.raises(Problem, match="not a folder of yours alone"):
        recordings.folder()
