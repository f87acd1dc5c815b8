"""One daemon for a segment: whoever holds the lock on SEGMENT.daemon.lock. The kernel releases it, however it ends."""

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
            if os.path.samestat(os.fstat(file), os.lstat(file_for(path))):
                return file
        except FileNotFoundError:
            pass
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(file)
                return None
            time.sleep(0.01)
        os.close(file)


def release(path: Path, file: int) -> None:
    with contextlib.suppress(OSError):
        file_for(path).unlink()
    os.close(file)


def is_held(path: Path) -> bool:
    """Whether a daemon looks after this segment. Raises a Problem where somebody has planted the lock's file."""
    try:
        file = files.open_trusted(path, file_for(path), os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(file)
