"""One daemon for a segment: whoever holds the lock on SEGMENT.daemon.lock. The kernel releases it, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

# Somebody who only looks whether a daemon runs holds the lock for an instant.
PATIENCE_SECONDS = 0.3


def file_for(path: Path) -> Path:
    return path / "daemon.lock" if path.is_dir() else path.with_name(path.name + ".daemon.lock")


def acquire(path: Path) -> int | None:
    """An open file that holds the lock until it is closed; None: another daemon has it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        file = os.open(file_for(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # One that ended just now has removed the file that we opened.
            if os.path.samestat(os.fstat(file), os.stat(file_for(path))):
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
    """Whether a daemon looks after this segment."""
    try:
        file = os.open(file_for(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(file)
