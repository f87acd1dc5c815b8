"""A segment for several users, created by an administrator: a folder, as native/wire/shared_segment.h describes.

header      one page; only the administrator writes it: knobs, policy, the GPUs, the grants
slots/N     one page: slot N, created and written by the user whose process it is
daemon.*    the administrator's daemon
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import mmap
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cotenant.segment.grants import Grant, best_class, smaller_limit, write_grants
from cotenant.segment.interface import Segment
from cotenant.segment.layout import PLACE, SEGMENT_BYTES, BadSegment, check_header, is_live
from cotenant.segment.library import make_shared_header, now_ns
from cotenant.segment.paths import check_owner
from cotenant.segment.pids import Seen, seen
from cotenant.segment.requests import wait_until_taken, with_pid, write_requests
from cotenant.segment.wire import GPU_VALID, SLOTS, Header, Slot

READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
# A slot has another name for as long as it takes to make it.
LONGEST_BIRTH_SECONDS = 60


@dataclass(frozen=True)
class SlotFile:
    index: int
    path: Path
    uid: int
    gid: int
    slot: Slot  # with what its owner cannot choose put right

    @property
    def is_live(self) -> bool:
        return is_live(self.slot)

    @functools.cached_property
    def seen(self) -> Seen:
        return seen(self.slot.pid, self.slot.pid_namespace, self.slot.started)

    @property
    def pid(self) -> int:
        return self.seen.pid

    @property
    def is_here(self) -> bool:
        return self.seen.is_here

    @property
    def started(self) -> int:
        return int(self.slot.started)


class NotYours(BadSegment):
    def __init__(self, found: SlotFile) -> None:
        super().__init__(f"tenant {found.pid} belongs to user {found.uid}")
        self.found = found


class FolderSegment(Segment):
    is_shared = True
    daemon_file_mode = 0o644  # other users read it, too

    @property
    def header_file(self) -> Path:
        return self.path / "header"

    def contents(self) -> bytes:
        header = self.read_header()
        memory = bytearray(SEGMENT_BYTES)
        memory[: ctypes.sizeof(header)] = bytes(header)
        for found in self.slot_files(header):
            at = PLACE * (1 + found.index)
            memory[at : at + ctypes.sizeof(found.slot)] = bytes(found.slot)
        return bytes(memory)

    @contextmanager
    def writable_header(self) -> Iterator[Header]:
        """Raises BadSegment where this user is not its administrator."""
        try:
            descriptor = self.open_header(os.O_RDWR)
        except PermissionError as error:
            raise BadSegment(f"{self.path} belongs to its administrator") from error
        with os.fdopen(descriptor, "r+b") as file:
            self.check(file.read(PLACE + 1))
            # It goes with the last that refers to it: closing it here would take it from the caller's hands.
            memory = mmap.mmap(file.fileno(), PLACE)
        yield Header.from_buffer(memory)

    def read_header(self) -> Header:
        with os.fdopen(self.open_header(os.O_RDONLY), "rb") as file:
            page = file.read(PLACE + 1)
        self.check(page)
        return Header.from_buffer_copy(page)

    def open_header(self, flags: int) -> int:
        with self.opened() as above:
            try:
                return os.open("header", flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=above)
            except (FileNotFoundError, PermissionError):
                raise
            except OSError as error:
                raise BadSegment(f"{self.header_file} cannot be opened: {error.strerror}") from error

    def check(self, page: bytes) -> None:
        if len(page) < ctypes.sizeof(Header):
            raise BadSegment(f"{self.path} is not a Cotenant segment")
        check_header(Header.from_buffer_copy(page), self.path)
        if len(page) != PLACE:
            raise BadSegment(f"{self.path} is not a Cotenant segment: its header is {len(page)} bytes long")

    @contextmanager
    def opened(self) -> Iterator[int]:
        """The folder, for dir_fd; no link is followed."""
        try:
            descriptor = os.open(self.path, FOLDER)
        except NotADirectoryError:
            raise BadSegment(f"{self.path} is no folder, or a symbolic link") from None
        try:
            check_owner(self.path, os.fstat(descriptor))
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def opened_slots(self) -> Iterator[int]:
        """The folder of the slots, likewise."""
        with self.opened() as above:
            try:
                descriptor = os.open("slots", FOLDER, dir_fd=above)
            except NotADirectoryError:
                raise BadSegment(f"{self.path}/slots is no folder, or a symbolic link") from None
            try:
                yield descriptor
            finally:
                os.close(descriptor)

    def slot_files(self, header: Header) -> Iterator[SlotFile]:
        """By their fixed names: other files in the folder hide none."""
        with self.opened_slots() as slots:
            for index in range(SLOTS):
                with suppress(OSError):
                    descriptor = os.open(str(index), READ, dir_fd=slots)
                    try:
                        if found := slot_in(descriptor, self.path / "slots" / str(index), header):
                            yield found
                    finally:
                        os.close(descriptor)

    def tenant_file(self, header: Header, pid: int) -> SlotFile | None:
        """Of the live tenant that is this process."""
        return with_pid(pid, (found for found in self.slot_files(header) if found.is_live))

    def slot_file(self, index: int) -> SlotFile | None:
        """Of the live tenant in this slot."""
        header = self.read_header()
        return next((one for one in self.slot_files(header) if one.index == index and one.is_live), None)

    def ask(self, pid: int, wanted: Mapping[str, int]) -> bool:
        found = self.tenant_file(self.read_header(), pid)
        return found is not None and self.write(found, wanted)

    def write(self, found: SlotFile, wanted: Mapping[str, int]) -> bool:
        """Requests into a slot; False: it is another's now. Raises NotYours."""
        with self.opened_slots() as slots:
            try:
                descriptor = os.open(found.path.name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=slots)
            except PermissionError as error:
                raise NotYours(found) from error
        try:
            if wanted:
                wait_until_taken(
                    lambda: Slot.from_buffer_copy(os.pread(descriptor, PLACE, 0).ljust(PLACE, b"\0"))
                )
            before = os.pread(descriptor, PLACE, 0)
            if len(before) != PLACE or os.fstat(descriptor).st_uid != found.uid:
                return False
            if not wanted:
                return True
            after = bytearray(before)
            write_requests(Slot.from_buffer(after), wanted)
            for at in range(0, len(after), 4):
                # Only the words that change: its owner writes the others meanwhile.
                if after[at : at + 4] != before[at : at + 4]:
                    os.pwrite(descriptor, after[at : at + 4], at)
        finally:
            os.close(descriptor)
        return True

    def best_class_of(self, pid: int) -> int:
        header = self.read_header()
        found = self.tenant_file(header, pid)
        return best_class(header, found.uid, found.gid) if found else 0

    def best_class_here(self) -> int:
        return best_class(self.read_header(), os.geteuid(), os.getegid())

    def may_have_daemon(self) -> bool:
        """The administrator's daemon serves it, or none."""
        return os.access(self.header_file, os.W_OK)

    def daemon_file(self, ending: str) -> Path:
        return self.path / f"daemon{ending}"

    def clean(self) -> tuple[list[Path], list[Path]]:
        """Reaps the slots of dead owners and removes files that are no slots; returns which, and which it may not."""
        header = self.read_header()
        removed, kept = [], []
        with self.opened_slots() as slots, os.scandir(slots) as entries:
            for name in sorted(entry.name for entry in entries):
                path = self.path / "slots" / name
                try:
                    if remove_unless_live(slots, path, header):
                        removed.append(path)
                except FileNotFoundError:
                    continue
                except OSError:
                    kept.append(path)
        return removed, kept


def create_folder(
    path: Path, group: int | None, grants: Sequence[Grant], gpus: Sequence[bytes], policy: str = ""
) -> None:
    """Whole or not at all. Raises FileExistsError, BadSegment, or the OSError in the way."""
    if os.path.lexists(path):
        raise FileExistsError(path)
    beside = FolderSegment(path.with_name(f"{path.name}.new.{os.getpid()}"))
    slots = beside.path / "slots"
    beside.path.mkdir(mode=0o700)
    try:
        slots.mkdir()
        make_shared_header(beside.header_file)
        with beside.writable_header() as header:
            header.policy = policy.encode()
            put_gpus(header, gpus)
            write_grants(header, grants)
        if group is not None:
            os.chown(slots, -1, group)
            os.chown(beside.path, -1, group)
        slots.chmod(0o1777 if group is None else 0o1770)
        beside.path.chmod(0o755 if group is None else 0o750)
        beside.path.rename(path)
    except BaseException:
        with suppress(OSError):
            beside.header_file.unlink()
        with suppress(OSError):
            slots.rmdir()
        with suppress(OSError):
            beside.path.rmdir()
        raise


def put_gpus(header: Header, gpus: Sequence[bytes]) -> None:
    """Those that are not there yet, as far as there are places for them."""
    there = {bytes(place.uuid) for place in header.gpus if place.known == GPU_VALID}
    free = [place for place in header.gpus if place.known != GPU_VALID]
    for place, uuid in zip(free, (one for one in gpus if one not in there), strict=False):
        place.uuid[:] = uuid
        place.known = GPU_VALID


def slot_in(descriptor: int, path: Path, header: Header) -> SlotFile | None:
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode) or about.st_size != PLACE:
        return None
    page = os.pread(descriptor, PLACE, 0)
    if len(page) != PLACE:
        return None
    slot = Slot.from_buffer_copy(page)
    slot.uid = about.st_uid
    slot.tenant_class = max(slot.tenant_class, best_class(header, about.st_uid, about.st_gid))
    slot.memory_limit = smaller_limit(slot.memory_limit, header, about.st_uid, about.st_gid)
    return SlotFile(int(path.name), path, about.st_uid, about.st_gid, slot)


def remove_unless_live(slots: int, path: Path, header: Header) -> bool:
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
        if path.name.isascii() and path.name.isdigit() and int(path.name) < SLOTS:
            found = slot_in(descriptor, path, header)
            if found and found.is_live:
                return False
        elif is_being_born(path.name):
            return False
        os.unlink(path.name, dir_fd=slots)
        return True
    finally:
        os.close(descriptor)


def is_being_born(name: str) -> bool:
    """A slot's file is called new.PID.MOMENT until it is whole (native/wire/shared_segment.cpp). The moment is one of
    the segment's clock, which nobody can set."""
    found = re.fullmatch(r"new\.\d+\.([0-9a-f]{1,16})", name)
    return found is not None and 0 <= now_ns() - int(found[1], 16) < LONGEST_BIRTH_SECONDS * 10**9
