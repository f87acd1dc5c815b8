"""A segment for several users, made by an administrator: a folder, as native/wire/shared_segment.h has it.

header      one page; only the administrator writes it: knobs, policy, the GPUs, the rights
slots/N     one page: slot N, made and written by the user whose process it is
daemon.*    the administrator's daemon
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from cotenant import segment
from cotenant.segment import BadSegment

UUID = re.compile(
    r"(?:GPU|MIG)-([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})", re.IGNORECASE
)
READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
# A slot has another name for as long as it takes to make it.
LONGEST_BIRTH_SECONDS = 60


class Whose(IntEnum):
    user = 1
    group = 2
    everybody = 3


@dataclass(frozen=True, order=True)
class Who:
    whose: Whose
    id: int = 0


@dataclass(frozen=True)
class Right:
    """What the administrator says of somebody; None and 0: nothing."""

    who: Who
    best_class: int | None = None
    memory_limit: int = 0  # on each GPU, all processes of a user together; as cotenant.units has it


@dataclass(frozen=True)
class SlotFile:
    index: int
    path: Path
    uid: int
    gid: int
    slot: segment.Slot  # with what its owner cannot choose put right

    @property
    def is_live(self) -> bool:
        return segment.is_live(self.slot)

    @property
    def pid(self) -> int:
        return int(self.slot.pid)

    @property
    def started(self) -> int:
        return int(self.slot.started)


def header_file(folder: Path) -> Path:
    return folder / "header"


def is_writable(folder: Path) -> bool:
    """Whether this user is its administrator."""
    return os.access(header_file(folder), os.W_OK)


def create(
    folder: Path, group: int | None, rights: Sequence[Right], gpus: Sequence[bytes], policy: str = ""
) -> None:
    """Whole or not at all. Raises FileExistsError, BadSegment, or the OSError in the way."""
    if os.path.lexists(folder):
        raise FileExistsError(folder)
    beside = folder.with_name(f"{folder.name}.new.{os.getpid()}")
    beside.mkdir(mode=0o700)
    try:
        (beside / "slots").mkdir()
        make_header(header_file(beside))
        with writable_header(beside) as header:
            header.policy = policy.encode()
            for place, uuid in zip(header.gpus, gpus, strict=False):
                place.uuid[:] = uuid
                place.known = segment.GPU_VALID
            write_rights(header, rights)
        if group is not None:
            os.chown(beside / "slots", -1, group)
            os.chown(beside, -1, group)
        (beside / "slots").chmod(0o1777 if group is None else 0o1770)
        beside.chmod(0o755 if group is None else 0o750)
        beside.rename(folder)
    except BaseException:
        with suppress(OSError):
            header_file(beside).unlink()
        with suppress(OSError):
            (beside / "slots").rmdir()
        with suppress(OSError):
            beside.rmdir()
        raise


def make_header(file: Path) -> None:
    library = segment.wire_library()
    why = ctypes.create_string_buffer(512)
    make = library.cotenant_segment_create_shared_header
    make.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
    if not make(os.fsencode(file), why, len(why)):
        raise BadSegment(why.value.decode(errors="replace"))


@contextmanager
def opened(folder: Path) -> Iterator[int]:
    """The folder, for dir_fd; no link is followed. Raises FileNotFoundError or BadSegment."""
    try:
        descriptor = os.open(folder, FOLDER)
    except NotADirectoryError:
        raise BadSegment(f"{folder} is no folder, or a symbolic link") from None
    try:
        segment.check_owner(folder, os.fstat(descriptor))
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def opened_slots(folder: Path) -> Iterator[int]:
    """The folder of the slots, likewise."""
    with opened(folder) as above:
        try:
            descriptor = os.open("slots", FOLDER, dir_fd=above)
        except NotADirectoryError:
            raise BadSegment(f"{folder}/slots is no folder, or a symbolic link") from None
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def open_header(folder: Path, flags: int) -> int:
    with opened(folder) as above:
        try:
            return os.open("header", flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=above)
        except (FileNotFoundError, PermissionError):
            raise
        except OSError as error:
            raise BadSegment(f"{header_file(folder)} cannot be opened: {error.strerror}") from error


@contextmanager
def writable_header(folder: Path) -> Iterator[segment.Header]:
    """Raises BadSegment where this user is not its administrator."""
    try:
        descriptor = open_header(folder, os.O_RDWR)
    except PermissionError as error:
        raise BadSegment(f"{folder} belongs to its administrator") from error
    with os.fdopen(descriptor, "r+b") as file:
        check_header(file.read(segment.PAGE + 1), folder)
        # It goes with the last that refers to it: closing it here would take it from the caller's hands.
        memory = mmap.mmap(file.fileno(), segment.PAGE)
    yield segment.Header.from_buffer(memory)


def read_header(folder: Path) -> segment.Header:
    """Raises FileNotFoundError or BadSegment."""
    with os.fdopen(open_header(folder, os.O_RDONLY), "rb") as file:
        page = file.read(segment.PAGE + 1)
    check_header(page, folder)
    return segment.Header.from_buffer_copy(page)


def check_header(page: bytes, folder: Path) -> None:
    if len(page) < ctypes.sizeof(segment.Header):
        raise BadSegment(f"{folder} is not a Cotenant segment")
    segment.check_header(segment.Header.from_buffer_copy(page), folder)
    if len(page) != segment.PAGE:
        raise BadSegment(f"{folder} is not a Cotenant segment: its header is {len(page)} bytes long")


def contents(folder: Path) -> bytes:
    """As a segment in one file would hold it."""
    header = read_header(folder)
    memory = bytearray(segment.SEGMENT_BYTES)
    memory[: ctypes.sizeof(header)] = bytes(header)
    for found in slot_files(folder, header):
        at = segment.PAGE * (1 + found.index)
        memory[at : at + ctypes.sizeof(found.slot)] = bytes(found.slot)
    return bytes(memory)


def slot_files(folder: Path, header: segment.Header) -> Iterator[SlotFile]:
    """By their names, of which there are so many and no more: whoever puts others there hides none."""
    with opened_slots(folder) as slots:
        for index in range(segment.SLOTS):
            with suppress(OSError):
                descriptor = os.open(str(index), READ, dir_fd=slots)
                try:
                    if found := slot_in(descriptor, folder / "slots" / str(index), header):
                        yield found
                finally:
                    os.close(descriptor)


def slot_in(descriptor: int, path: Path, header: segment.Header) -> SlotFile | None:
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode) or about.st_size != segment.PAGE:
        return None
    page = os.pread(descriptor, segment.PAGE, 0)
    if len(page) != segment.PAGE:
        return None
    slot = segment.Slot.from_buffer_copy(page)
    slot.uid = about.st_uid
    slot.tenant_class = max(slot.tenant_class, best_class(header, about.st_uid, about.st_gid))
    return SlotFile(int(path.name), path, about.st_uid, about.st_gid, slot)


def ask(folder: Path, pid: int, wanted: Mapping[str, int]) -> bool:
    """As segment.ask."""
    found = tenant_file(folder, read_header(folder), pid)
    if found is None:
        return False
    with opened_slots(folder) as slots:
        try:
            descriptor = os.open(found.path.name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=slots)
        except PermissionError as error:
            raise BadSegment(
                f"tenant {pid} belongs to user {found.uid}, who may change it, as may the administrator"
            ) from error
    try:
        before = os.pread(descriptor, segment.PAGE, 0)
        if len(before) != segment.PAGE or os.fstat(descriptor).st_uid != found.uid:
            return False
        after = bytearray(before)
        segment.write_requests(segment.Slot.from_buffer(after), wanted)
        for at in range(0, len(after), 4):
            # Only the words that change: its owner writes the others meanwhile.
            if after[at : at + 4] != before[at : at + 4]:
                os.pwrite(descriptor, after[at : at + 4], at)
    finally:
        os.close(descriptor)
    return True


def tenant_file(folder: Path, header: segment.Header, pid: int) -> SlotFile | None:
    """Of the live tenant that is this process."""
    return segment.with_pid(pid, (found for found in slot_files(folder, header) if found.is_live))


def rights_in(header: segment.Header) -> list[Right]:
    known = {whose.value for whose in Whose}
    return [
        Right(
            Who(Whose(entry.whose), entry.id),
            entry.best_class - 1 if entry.best_class else None,
            entry.memory_limit,
        )
        for entry in header.rights
        if entry.whose in known
    ]


def write_rights(header: segment.Header, rights: Iterable[Right]) -> None:
    """An entry counts while its check word agrees: whoever reads it meanwhile finds it whole or not at all."""
    places = iter(header.rights)
    for right, place in zip(rights, places, strict=False):
        place.id = right.who.id
        place.best_class = 0 if right.best_class is None else 1 + right.best_class
        place.memory_limit = right.memory_limit
        place.whose = int(right.who.whose)
    for place in places:
        place.whose = 0
    segment.seal(header)


def merged(
    before: Iterable[Right], classes: Mapping[Who, int | None], limits: Mapping[Who, int]
) -> list[Right]:
    """With what is said anew; who is left with nothing has no entry."""
    said = {right.who: right for right in before}
    for who in {**classes, **limits}:
        old = said.get(who, Right(who))
        said[who] = Right(who, classes.get(who, old.best_class), limits.get(who, old.memory_limit))
    return [said[who] for who in sorted(said) if said[who].best_class is not None or said[who].memory_limit]


def best_class(header: segment.Header, uid: int, gid: int) -> int:
    """What is said most particularly; as wire::best_class."""
    fitting = [
        right
        for right in rights_in(header)
        if right.who in (Who(Whose.user, uid), Who(Whose.group, gid)) or right.who.whose is Whose.everybody
    ]
    said = [right for right in fitting if right.best_class is not None]
    return min(said, key=lambda right: right.who.whose).best_class or 0 if said else 0


def best_class_of(folder: Path, pid: int) -> int:
    """What the administrator allows the tenant with this PID."""
    header = read_header(folder)
    found = tenant_file(folder, header, pid)
    return best_class(header, found.uid, found.gid) if found else 0


def clean(folder: Path) -> tuple[list[Path], list[Path]]:
    """Removes the slots of the dead and what is no slot; says which, and which of them it may not."""
    header = read_header(folder)
    removed, kept = [], []
    with opened_slots(folder) as slots, os.scandir(slots) as entries:
        for name in sorted(entry.name for entry in entries):
            path = folder / "slots" / name
            try:
                if remove_unless_live(slots, path, header):
                    removed.append(path)
            except FileNotFoundError:
                continue
            except OSError:
                kept.append(path)
    return removed, kept


def remove_unless_live(slots: int, path: Path, header: segment.Header) -> bool:
    """As native/wire/shared_segment.cpp does it: under a lock on the file, so that the name stays its own."""
    about = os.stat(path.name, dir_fd=slots, follow_symlinks=False)
    if stat.S_ISDIR(about.st_mode):
        os.rmdir(path.name, dir_fd=slots)
        return True
    if not stat.S_ISREG(about.st_mode):
        os.unlink(path.name, dir_fd=slots)
        return True
    descriptor = os.open(path.name, READ, dir_fd=slots)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        named = os.stat(path.name, dir_fd=slots, follow_symlinks=False)
        if not os.path.samestat(os.fstat(descriptor), named):
            return False
        if path.name.isascii() and path.name.isdigit() and int(path.name) < segment.SLOTS:
            found = slot_in(descriptor, path, header)
            if found and found.is_live:
                return False
        elif path.name.startswith("new.") and time.time() - about.st_mtime < LONGEST_BIRTH_SECONDS:
            return False
        os.unlink(path.name, dir_fd=slots)
        return True
    finally:
        os.close(descriptor)


def uuid_bytes(text: str) -> bytes | None:
    found = UUID.fullmatch(text.strip())
    return bytes.fromhex(found[1].replace("-", "")) if found else None
