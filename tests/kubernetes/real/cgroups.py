"""A cgroup for each node, under which kubelet and containerd keep those of its pods."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

MOUNTED = Path("/sys/fs/cgroup")


def roots() -> list[Path]:
    """Of each hierarchy: one of version 2, or one a controller of version 1 and maybe one of version 2 beside them."""
    if (MOUNTED / "cgroup.controllers").exists():
        return [MOUNTED]
    lines = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return [Path(where) for _, where, kind, *_ in lines if kind in ("cgroup", "cgroup2")]


def make(name: str) -> bool:
    """False: this machine does not let us."""
    try:
        for root in roots():
            (root / name).mkdir()
            control = root / name / "cgroup.subtree_control"
            if control.exists():
                given = (root / name / "cgroup.controllers").read_text().split()
                control.write_text(" ".join(f"+{one}" for one in given))
    except OSError:
        remove(name)
        return False
    return bool(roots())


def processes(name: str) -> set[int]:
    found: set[int] = set()
    for root in roots():
        for file in (root / name).rglob("cgroup.procs"):
            with contextlib.suppress(OSError):
                found |= {int(line) for line in file.read_text().split()}
    return found


def remove(name: str) -> None:
    """With whatever still runs in it."""
    deadline = time.monotonic() + 10
    while (left := processes(name)) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
    for root in roots():
        folders = [path for path in (root / name).rglob("*") if path.is_dir()]
        for folder in (*reversed(sorted(folders)), root / name):
            with contextlib.suppress(OSError):
                folder.rmdir()
