"""Starts a process of ours from `cotenant run`: detached from the command, and nobody's child."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

# What is meant for the guest, or changes how a process uses a GPU; a service of its own tells systemd about itself.
OF_THE_GUEST = ("LD_PRELOAD", "CUDA_", "COTENANT_", "NOTIFY_SOCKET")


def environment_for(environment: Mapping[str, str], kept: tuple[str, ...]) -> dict[str, str]:
    """Without what is the guest's, but with what begins as `kept` says."""
    left = {
        name: value
        for name, value in environment.items()
        if name.startswith(kept) or not name.startswith(OF_THE_GUEST)
    }
    if folders := left.get("PYTHONPATH"):
        # It works in another folder.
        left["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, folders.split(os.pathsep)))
    return left


def spawn(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Returns at once, with its PID; 0: it was not made. Raises OSError where there can be no new process."""
    # In between there is a process that ends at once: the command must not get a child that it knows nothing of.
    read, write = os.pipe()
    between = os.fork()
    if between:
        os.close(write)
        os.waitpid(between, 0)
        told = os.read(read, 32)
        os.close(read)
        return int(told or 0)
    try:
        os.setsid()
        if (made := os.fork()) != 0:
            os.write(write, b"%d" % made)
        else:
            os.chdir("/")
            nothing = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):
                os.dup2(nothing, stream)
            for file in map(int, os.listdir("/proc/self/fd")):
                if file > 2:
                    with contextlib.suppress(OSError):
                        os.close(file)
            os.execve(command[0], list(command), dict(environment))
    finally:
        os._exit(0)


def is_running(pid: int) -> bool:
    """Nobody may have asked yet how it ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False
