"""LD_PRELOAD as a list: the loader takes spaces and colons as separators."""

from __future__ import annotations

import re
from pathlib import Path

from cotenant.launch.native_files import is_shim


def entries(value: str | None) -> list[str]:
    return [entry for entry in re.split(r"[ :]+", value or "") if entry]


def can_hold(path: Path) -> bool:
    """The loader knows no way to quote a separator."""
    return entries(str(path)) == [str(path)]


def without_shims(value: str | None) -> list[str]:
    """What others have put there, in order."""
    return [entry for entry in entries(value) if not is_shim(Path(entry))]


def with_shim(value: str | None, shim: Path) -> str:
    return ":".join([str(shim), *without_shims(value)])


def drop_shims(environment: dict[str, str]) -> None:
    """Leaves LD_PRELOAD as it is where no interposer is in it."""
    others = without_shims(environment.get("LD_PRELOAD"))
    if len(others) < len(entries(environment.get("LD_PRELOAD"))):
        environment["LD_PRELOAD"] = ":".join(others)
        if not others:
            del environment["LD_PRELOAD"]
