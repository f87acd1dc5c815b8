"""One daemon for a segment: the process that holds the lock on SEGMENT.daemon.lock. The kernel releases it, however the
daemon ends.

The file names its segment by device and inode. So the daemon of a segment that was removed or replaced keeps its lock
for as long as it has tenants, and does not keep another daemon from serving the new one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from cotenant.daemon import files
from cotenant.errors import Problem

# Somebody who only looks whether a daemon runs holds the lock for an instant.
PATIENCE_SECONDS = 0.3


def file_for(path: Path) -> Path:
    return files.beside(path, ".lock")


@contextlib.contextmanager
def turn(path: Path) -> Iterator[None]:
    """One process at a time makes the lock's file its own, or removes it: two that start at once must not remove
    each other's. Raises a Problem where somebody has planted the file whose lock is the turn."""
    name = files.beside(path, ".lock.turn")
    while True:
        file = files.open_trusted(path, name, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not is_named(name, file):  # whoever had the turn has removed it
                continue
            try:
                yield
            finally:
                name.unlink(missing_ok=True)
            return
        finally:
            os.close(file)


def acquire(path: Path) -> int | None:
    """An open file that holds the lock until it is closed; None: another daemon has it. Raises a Problem where
    somebody has planted the file."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        with turn(path):
            file = files.open_trusted(path, file_for(path), os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if is_named(file_for(path), file):  # nobody has removed it by hand
                    os.ftruncate(file, 0)
                    os.pwrite(file, identity(path), 0)
                    return file
            except BlockingIOError:
                if is_for_another(path, file):
                    file_for(path).unlink(missing_ok=True)
                elif time.monotonic() > deadline:
                    os.close(file)
                    return None
            os.close(file)
        time.sleep(0.01)


def release(path: Path, file: int) -> None:
    with contextlib.suppress(OSError, Problem), turn(path):
        if is_named(file_for(path), file):
            file_for(path).unlink()
    os.close(file)


def keep(path: Path, file: int) -> bool:
    """For the daemon that holds it: where somebody has removed the file, the lock moves to a new one. False: another
    daemon came first, and serves the segment now. Raises OSError, and a Problem where somebody has planted the file."""
    if is_named(file_for(path), file):
        return True
    again = acquire(path)
    if again is None:
        return False
    os.dup2(again, file, inheritable=False)
    os.close(again)
    return True


def is_named(name: Path, file: int) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.lstat(name))
    except FileNotFoundError:
        return False


def identity(path: Path) -> bytes:
    """Empty: there is no segment of this name."""
    try:
        about = os.lstat(path)
    except OSError:
        return b""
    return f"{about.st_dev} {about.st_ino}\n".encode()


def is_for_another(path: Path, file: int) -> bool:
    """Whether a held lock is for a segment that had this name before."""
    said = os.pread(file, 100, 0)
    return said != b"" and said != identity(path)


def is_held(path: Path) -> bool:
    """Whether a daemon runs for this segment. Raises a Problem where another user has planted the lock's file."""
    try:
        file = files.open_trusted(path, file_for(path), os.O_RDONLY)
    except PermissionError:
        return is_in_kernels_list(file_for(path))
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return not is_for_another(path, file)
    finally:
        os.close(file)


def is_in_kernels_list(file: Path) -> bool:
    """For other users, who may not open an administrator's: who could, could also lock it."""
    try:
        about = file.lstat()
        device = f"{os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}:{about.st_ino}"
        return any(device in line.split() for line in Path("/proc/locks").read_text().splitlines())
    except OSError:
        return False
