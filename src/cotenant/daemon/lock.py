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
from pathlib import Path

from cotenant.daemon import files

# Somebody who only looks whether a daemon runs holds the lock for an instant.
PATIENCE_SECONDS = 0.3


def file_for(path: Path) -> Path:
    return files.beside(path, ".lock")


def acquire(path: Path) -> int | None:
    """An open file that holds the lock until it is closed; None: another daemon has it. Raises a Problem where
    somebody has planted the file."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        file = files.open_trusted(path, file_for(path), os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # One that ended just now has removed the file that we opened.
            if is_named(path, file):
                os.ftruncate(file, 0)
                os.pwrite(file, identity(path), 0)
                return file
        except FileNotFoundError:
            pass
        except BlockingIOError:
            if is_for_another(path, file):
                release(path, file)
                continue
            if time.monotonic() > deadline:
                os.close(file)
                return None
            time.sleep(0.01)
        os.close(file)


def release(path: Path, file: int) -> None:
    with contextlib.suppress(OSError):
        if is_named(path, file):
            file_for(path).unlink()
    os.close(file)


def is_named(path: Path, file: int) -> bool:
    """Raises FileNotFoundError."""
    return os.path.samestat(os.fstat(file), os.lstat(file_for(path)))


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
