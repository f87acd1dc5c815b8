"""Where a segment lies, and whose segment may be used there."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from cotenant.errors import Problem
from cotenant.segment.layout import BadSegment
from cotenant.segment.wire import VERSION

SHARED = Path("/dev/shm/cotenant.shared")


def path_for(environment: Mapping[str, str]) -> Path:
    given = environment.get("COTENANT_SEGMENT")
    if given:
        return Path(given).absolute()
    return administrators() or own_default()


def path_to_read(named: Path | None) -> Path:
    """Of a command that looks at tenants: a segment that was named must be there; the default one may be yet to come.
    Raises Problem."""
    if named is None:
        return path_for({})
    path = named.absolute()
    try:
        if stat.S_ISDIR(path.lstat().st_mode):
            (path / "header").lstat()
    except (FileNotFoundError, NotADirectoryError):
        if is_folder(path):
            hint = "check --segment and COTENANT_SEGMENT; `cotenant segment create` makes a segment that is a folder"
            raise Problem(f"{path} is not a Cotenant segment", hint) from None
        hint = "check --segment and COTENANT_SEGMENT; the first `cotenant run` with this name creates it"
        raise Problem(f"there is no segment {path}", hint) from None
    except OSError:
        pass  # reading it says more
    return path


def own_default() -> Path:
    return Path(f"/dev/shm/cotenant-{os.getuid()}.v{VERSION}")


def is_trusted(about: os.stat_result) -> bool:
    """Whether what the segment says may be believed beyond this segment: it is root's or one's own."""
    return about.st_uid in (0, os.geteuid())


def check_owner(path: Path, about: os.stat_result) -> None:
    """A stranger's segment is used only where somebody named it, not where it lies in wait; as in native/wire."""
    if not is_trusted(about) and path in (SHARED, own_default()):
        raise BadSegment(f"{path} belongs to another user")


def is_folder(path: Path) -> bool:
    """Whether it is an administrator's segment (cotenant.segment.folder). No link is followed."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def administrators() -> Path | None:
    """The segment that root has made for all users (cotenant.segment.folder); as wire::default_shared_segment."""
    try:
        about = SHARED.lstat()
    except OSError:
        return None
    is_roots = stat.S_ISDIR(about.st_mode) and about.st_uid == 0 and not about.st_mode & 0o022
    return SHARED if is_roots else None
