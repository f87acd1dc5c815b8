"""An administrator's segment by itself: nobody can harm another, and everybody looks after their own gate."""

from __future__ import annotations

import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cotenant import segment
from cotenant.segment.folder import create_folder
from tests.compiling import compile_program

NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of other users")


@pytest.fixture(scope="module")
def shared_slots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(tmp_path_factory.mktemp("shared"), "tests/wire/shared_slots.cpp")


@pytest.fixture
def folder(native: Path) -> Iterator[Path]:
    # Not in tmp_path, where other users do not come in.
    with tempfile.TemporaryDirectory(prefix="cotenant-test-") as beside:
        Path(beside).chmod(0o755)
        made = Path(beside) / "segment"
        create_folder(made, None, [], [bytes(16)])
        # What a heartbeat is worth must not depend on how busy this machine is; the tests that need an old one make it.
        with (made / "header").open("r+b") as header:
            header.seek(segment.Header.knobs.offset + segment.Knobs.stale_ms.offset)
            header.write((60_000).to_bytes(4, "little"))
        yield made


def run(program: Path, folder: Path, case: str) -> None:
    command = [str(program), str(folder), *case.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "case",
    [
        "waits",
        "turns",
        "crowd",
        "churn 200",
        "faults",
        "held up",
        "forked",
        "limits",
        "junk",
        "files",
        "bell",
    ],
)
def test_slots(shared_slots: Path, folder: Path, case: str) -> None:
    run(shared_slots, folder, case)


@NEEDS_ROOT
@pytest.mark.parametrize("case", ["users", "grants", "cut", "linked", "unreadable"])
def test_slots_of_two_users(shared_slots: Path, folder: Path, case: str) -> None:
    run(shared_slots, folder, case)


def test_a_segment_that_others_than_its_owner_can_change_is_not_trusted(
    shared_slots: Path, folder: Path
) -> None:
    for place in (folder, folder / "header"):
        mode = place.stat().st_mode
        for writable in (stat.S_IWGRP, stat.S_IWOTH):
            place.chmod(mode | writable)
            command = [str(shared_slots), str(folder), "limits"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
            refused = f"{folder} can be changed by others than its owner\n"
            assert (done.returncode, done.stderr) == (1, refused), (place, oct(writable))
        place.chmod(mode)


def test_who_is_killed_before_its_slot_has_a_name_leaves_nothing_behind(
    shared_slots: Path, folder: Path
) -> None:
    run(shared_slots, folder, "faults")
    slots = folder / "slots"
    assert [path.name for path in slots.iterdir() if not path.name.isdigit()] == []
    (slots / "5").write_bytes(b"short")
    (slots / "6").symlink_to("/dev/zero")
    segment.FolderSegment(folder).clean()
    assert list(slots.iterdir()) == []


@pytest.fixture
def with_its_own_default(tmp_path: Path) -> Path:
    """Compiled with another place for the default segment: the real one is for the whole machine."""
    return compile_program(tmp_path, "tests/wire/shared_slots.cpp", define='COTENANT_SHARED_SEGMENT="shared"')


def test_the_default_is_found_only_where_it_is_roots(tmp_path: Path, with_its_own_default: Path) -> None:
    place = tmp_path / "shared"
    command = [str(with_its_own_default), "-", "default"]

    def found() -> str:
        return subprocess.run(
            command, check=True, capture_output=True, text=True, cwd=tmp_path
        ).stdout.strip()

    assert found() == "none"
    place.touch()
    assert found() == "none"
    place.unlink()
    place.mkdir(mode=0o755)
    assert found() == (place.name if os.geteuid() == 0 else "none")
    place.chmod(0o1777)
    assert found() == "none"
