"""Files that are there whole or not at all, also after a power failure."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

NEW, OLD = ".new-", ".old-"


def write(path: Path, content: str, mode: int = 0o644) -> None:
    """Replaces what was there."""
    beside = path.with_name(f"{NEW}{path.name}")
    put(beside, content, mode)
    beside.rename(path)
    sync(path.parent)


def write_folder(path: Path, files: Mapping[str, str]) -> None:
    """A new folder with these files; where there is one, it stays as it is."""
    if path.exists():
        return
    beside = path.with_name(f"{NEW}{path.name}")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    for name, content in files.items():
        put(beside / name, content, 0o644)
    sync(beside)
    beside.rename(path)
    sync(path.parent)


def remove_folder(path: Path) -> None:
    gone = path.with_name(f"{OLD}{path.name}")
    shutil.rmtree(gone, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        path.rename(gone)
        sync(path.parent)
    shutil.rmtree(gone, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Removes what a process left behind that was killed amid one of these."""
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.name.startswith((NEW, OLD)):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)


def put(path: Path, content: str, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, mode)
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
