"""Folders that are this user's alone."""

from __future__ import annotations

from pathlib import Path


def make(folder: Path) -> None:
    """With what is missing above it, to which the mode that `mkdir` is given does not apply. Raises OSError."""
    missing = [one for one in (folder, *folder.parents) if not one.is_dir()]
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)
