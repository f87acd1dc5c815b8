"""An administrator's segment: who is granted what, what is written into another's slot, what a failure leaves."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cotenant import events, segment
from cotenant.commands.segment import of_a_folder
from cotenant.daemon.attachment import Attachment
from cotenant.events import log
from cotenant.segment import FolderSegment
from cotenant.segment.folder import create_folder
from cotenant.segment.grants import Grant, Subject, best_class, smaller_limit, write_grants
from cotenant.segment.wire import SubjectKind
from tests.segments import UUID, Written, sign

STRANGER = 65533
GiB = 1 << 30
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


@pytest.fixture
def path(native: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cotenant-test-") as beside:
        made = Path(beside) / "segment"
        create_folder(made, None, [], [UUID])
        yield made


def put_slot(path: Path, index: int, pid: int, job: bytes = b"") -> segment.Slot:
    slot = Written().tenant(index, pid)
    slot.job, slot.gpus[0].figures.bursts = job, 1
    sign(slot)
    (path / "slots" / str(index)).write_bytes(bytes(slot).ljust(segment.PLACE, b"\0"))
    return slot


def slot_of(path: Path, index: int) -> segment.Slot:
    return segment.Slot.from_buffer_copy((path / "slots" / str(index)).read_bytes())


def test_a_limit_for_a_user_hides_no_class_that_everybody_is_granted(path: Path) -> None:
    """Nor a class a limit: each is looked for by itself."""
    user, everybody = Subject(SubjectKind.user, 1000), Subject(SubjectKind.everybody)
    with FolderSegment(path).writable_header() as header:
        write_grants(header, [Grant(user, None, 2 * GiB), Grant(everybody, 1)])
        assert best_class(header, 1000, 7) == 1
        write_grants(header, [Grant(user, 0), Grant(everybody, None, GiB)])
        assert (best_class(header, 1000, 7), smaller_limit(0, header, 1000, 7)) == (0, GiB)
        # Fewer grants than before: those behind them are gone.
        write_grants(header, [Grant(user, 2)])
        assert (best_class(header, 1000, 7), smaller_limit(0, header, 1000, 7)) == (2, 0)
        assert best_class(header, 1001, 7) == 0


def test_what_the_owner_writes_while_it_is_asked_stays(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_slot(path, 3, 4711)
    pread = os.pread
    beats: list[int] = []

    def pread_late(descriptor: int, count: int, at: int) -> bytes:
        before = pread(descriptor, count, at)
        with (path / "slots" / "3").open("r+b") as owners:
            owners.seek(segment.Slot.heartbeat_ns.offset)
            beats.append(len(beats) + 1)
            owners.write(beats[-1].to_bytes(8, "little"))
        return before

    monkeypatch.setattr(os, "pread", pread_late)
    assert segment.ask(path, 4711, {"weight": 2000})
    monkeypatch.undo()
    assert (slot_of(path, 3).heartbeat_ns, slot_of(path, 3).asked.weight) == (len(beats), 2001)


@NEEDS_ROOT
def test_a_slot_that_another_user_has_taken_meanwhile_is_not_asked(path: Path) -> None:
    put_slot(path, 3, 4711)
    there = FolderSegment(path)
    found = there.slot_file(3)
    assert found is not None
    os.chown(path / "slots" / "3", STRANGER, STRANGER)
    assert not there.write(found, {"weight": 2000})
    assert slot_of(path, 3).asked.weight == 0


@NEEDS_ROOT
def test_programs_of_two_users_are_two_whatever_their_names(path: Path) -> None:
    for index, pid in ((3, 4711), (4, 4712)):
        put_slot(path, index, pid, b"train.py")
    os.chown(path / "slots" / "4", STRANGER, STRANGER)
    attachment = Attachment(path)
    try:
        programs = [one.program for one in attachment.look().views[0].tenants]
    finally:
        attachment.close()
    assert len(set(programs)) == 2 and all(one.endswith(":train.py") for one in programs)


def test_a_segment_that_cannot_be_made_leaves_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "chown", refused)
    beside = path.with_name("another")
    with pytest.raises(PermissionError):
        create_folder(beside, 7, [], [UUID])
    assert list(path.parent.iterdir()) == [path]


def test_other_users_may_read_the_events_whatever_the_umask(path: Path) -> None:
    event = events.Event(1.0, events.Kind.daemon_started, "policy guard", pid=1)
    before = os.umask(0o077)
    try:
        log.append(path, [event])
    finally:
        os.umask(before)
    assert log.file_for(path).stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("words", "variable", "meant"),
    [
        (["/one"], "", "/one"),
        (["--segment", "/two"], "", "/two"),
        ([], "/three", "/three"),
        (["/one", "--segment", "/two"], "/three", "/one"),
        ([], "", str(segment.SHARED)),
    ],
)
def test_a_folder_is_named_as_for_the_other_commands(words: list[str], variable: str, meant: str) -> None:
    seen: list[Path] = []

    @click.command()
    @of_a_folder
    def command(path: Path) -> None:
        seen.append(path)

    done = CliRunner().invoke(command, words, env={"COTENANT_SEGMENT": variable or None})
    assert (done.exit_code, seen) == (0, [Path(meant)]), done.output
