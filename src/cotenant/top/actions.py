"""What the keys of `cotenant top` do to tenants. All but ending one is a `cotenant` command, with that command's words.

A tenant writes its own slot, and may name a process there that is not its own: root must not end that one. A signal
goes to a process that has the segment mapped, and that is of the user and began when the slot says.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from cotenant import segment
from cotenant.errors import Problem
from cotenant.segment.paths import is_folder
from cotenant.segment.requests import is_process

OTHERS_SETTINGS = ("COTENANT_CTL_", "COTENANT_RESUME_")  # variables that would add to what a key asks for


async def command(path: Path, *words: str) -> str:
    """What it said. Raises Problem."""
    arguments = [sys.executable, "-P", "-m", "cotenant", *words, "--segment", str(path)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(OTHERS_SETTINGS)}
    process = await asyncio.create_subprocess_exec(
        *arguments,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, said = await process.communicate()
    except asyncio.CancelledError:  # the screen closes; what the command has asked of the tenant stands
        process.kill()
        await process.wait()
        raise
    told = said.decode(errors="replace").strip()
    if process.returncode:
        raise Problem(told.removeprefix("error: "))
    return told


def end(path: Path, tenant: segment.Tenant, number: signal.Signals) -> str:
    """Sends the signal. Raises Problem."""
    named = f"{tenant.pid} ({tenant.program})"
    try:
        descriptor = os.pidfd_open(tenant.pid)
    except (OSError, OverflowError):
        raise Problem(f"{named} has ended, or runs in another PID namespace") from None
    try:
        # From here on the number cannot become another process's.
        if not is_process(tenant) or not has_mapped(tenant.pid, path):
            raise Problem(
                f"process {tenant.pid} is not the tenant: that has ended, or its namespace is another"
            )
        signal.pidfd_send_signal(descriptor, number)
    except PermissionError:
        raise Problem(f"{named} belongs to user {tenant.uid}: only that user and root can end it") from None
    except ProcessLookupError:
        raise Problem(f"{named} has ended") from None
    finally:
        os.close(descriptor)
    return f"{named}: {number.name} sent"


def has_mapped(pid: int, path: Path) -> bool:
    file = path / "header" if is_folder(path) else path
    about = file.stat()
    place = (f"{os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}", str(about.st_ino))
    return any(one[:2] == place or one[2] == str(file.resolve()) for one in mapped_files(pid))


def mapped_files(pid: int) -> Iterator[tuple[str, str, str]]:
    """Device, inode and path, as /proc/PID/maps has them."""
    with open(f"/proc/{pid}/maps", errors="replace") as file:
        for line in file:
            words = line.rstrip("\n").split(maxsplit=5)
            if len(words) == 6:
                yield words[3], words[4], words[5]
