"""A user's own segment: one file."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cotenant.segment.interface import Segment
from cotenant.segment.layout import PLACE, SEGMENT_BYTES, BadSegment, check_header, is_live
from cotenant.segment.paths import check_owner
from cotenant.segment.requests import SlotClaim, wait_until_taken, with_pid, write_requests
from cotenant.segment.snapshot import snapshot_of
from cotenant.segment.wire import Header, Slot


class FileSegment(Segment):
    is_shared = False
    daemon_file_mode = 0o600

    def contents(self) -> bytes:
        # Read, not mapped: truncating a mapped file kills its readers.
        with os.fdopen(open_file(self.path, os.O_RDONLY), "rb") as file:
            return file.read(SEGMENT_BYTES)

    def writable(self) -> mmap.mmap:
        """Locked against others who change it as long as it is mapped. It goes with the last that refers to it: closing
        it would take it from the caller's hands."""
        with os.fdopen(open_file(self.path, os.O_RDWR), "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file.fileno()).st_size != SEGMENT_BYTES:
                snapshot_of(file.read(SEGMENT_BYTES), self.path)  # says what it is instead
                raise BadSegment(f"{self.path} is not a Cotenant segment")
            memory = mmap.mmap(file.fileno(), SEGMENT_BYTES)
        check_header(Header.from_buffer_copy(memory), self.path)
        return memory

    @contextmanager
    def writable_header(self) -> Iterator[Header]:
        yield Header.from_buffer(self.writable())

    def ask(self, pid: int, wanted: Mapping[str, int]) -> bool:
        try:
            memory = self.writable()
        except PermissionError as error:
            raise BadSegment(f"{self.path} is not writable") from error
        slots = [Slot.from_buffer(memory, at) for at in range(PLACE, SEGMENT_BYTES, PLACE)]
        found = with_pid(pid, (SlotClaim(slot) for slot in slots if is_live(slot)))
        if found is not None and wanted:
            wait_until_taken(lambda: found.slot)
            write_requests(found.slot, wanted)
        return found is not None

    def best_class_of(self, pid: int) -> int:
        return 0

    def best_class_here(self) -> int:
        return 0

    def may_have_daemon(self) -> bool:
        return True

    def daemon_file(self, ending: str) -> Path:
        return self.path.with_name(f"{self.path.name}.daemon{ending}")


def open_file(path: Path, flags: int) -> int:
    """Raises FileNotFoundError, PermissionError or BadSegment."""
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, PermissionError):
        raise
    except OSError as error:
        why = "is a symbolic link" if error.errno == errno.ELOOP else f"cannot be opened: {error.strerror}"
        raise BadSegment(f"{path} {why}") from error
    about = os.fstat(descriptor)
    try:
        check_owner(path, about)
        if not stat.S_ISREG(about.st_mode):
            raise BadSegment(f"{path} is not a Cotenant segment")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
