"""The daemon's files beside a segment, which may lie in a folder where everybody can write, as in /dev/shm.

The daemon follows no link, and a file counts only if it belongs to this user, to root, or to the segment's owner. It
does not use any other file: one line says what the file is and what to do.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from cotenant.errors import Problem
from cotenant.segment import open as open_segment

CAREFULLY = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # non-blocking: a planted pipe must not block us


def beside(segment: Path, ending: str) -> Path:
    return open_segment(segment).daemon_file(ending)


def open_trusted(segment: Path, file: Path, flags: int) -> int:
    """An open regular file. Raises FileNotFoundError, or a Problem where it was planted."""
    try:
        descriptor = os.open(file, flags | CAREFULLY, 0o600)
    except FileNotFoundError:
        raise
    except OSError:
        check(segment, file)
        raise
    try:
        complain_of(segment, file, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def check(segment: Path, file: Path) -> None:
    """Raises a Problem where the file was planted; one that is missing is none."""
    with contextlib.suppress(FileNotFoundError):
        complain_of(segment, file, file.lstat())


def complain_of(segment: Path, file: Path, about: os.stat_result) -> None:
    if stat.S_ISREG(about.st_mode) and about.st_uid in trusted(segment):
        return
    what = "is a link" if stat.S_ISLNK(about.st_mode) else "is no regular file"
    if about.st_uid not in trusted(segment):
        what = f"belongs to user {about.st_uid}"
    raise Problem(f"{file} {what}", "have it removed, or name another segment with --segment")


def trusted(segment: Path) -> set[int]:
    owners = {0, os.geteuid()}
    with contextlib.suppress(OSError):
        owners.add(segment.lstat().st_uid)
    return owners


def new(file: Path) -> Path:
    """What it is called until it is whole."""
    return file.with_name(f"{file.name}.new")


def replace(segment: Path, file: Path, content: bytes) -> None:
    """Whole at every moment, and never through a link. Raises OSError."""
    unfinished = new(file)
    with contextlib.suppress(FileNotFoundError):
        unfinished.unlink()
    mode = open_segment(segment).daemon_file_mode
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | CAREFULLY, mode)
    with os.fdopen(descriptor, "wb") as out:
        os.fchmod(descriptor, mode)  # whatever the umask
        out.write(content)
    unfinished.replace(file)
