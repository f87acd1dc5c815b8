"""What the soak counts: slots, bytes, processes, descriptors, files; before, meanwhile, and after."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from cotenant import segment
from cotenant.daemon import report

PATIENCE_SECONDS = 60.0
# What a library may open, and the C library keep, after the first look.
FEW_DESCRIPTORS = 3
FEW_BYTES = 24 << 20
# The software GPU's NVML connects when it is first asked, whenever that is.
SOFTWARE_NVML = Counter({"softgpu-host": 1, "softgpu-reader": 1})
SHARED_FOLDERS = ("/dev/shm/", "/tmp/", "/run/", "/var/")


@dataclass(frozen=True)
class Holding:
    """What one process holds."""

    descriptors: int
    threads: Counter[str]  # by name
    resident: int  # bytes, apart from the host memory that its slot accounts for

    def excess(self, before: Holding) -> str:
        """What it holds more than before; empty: nothing that counts."""
        words = []
        if self.descriptors > before.descriptors + FEW_DESCRIPTORS:
            words.append(f"{self.descriptors - before.descriptors} more descriptors")
        if more := self.threads - before.threads - SOFTWARE_NVML:
            words.append(f"more threads: {', '.join(sorted(more.elements()))}")
        if self.resident > before.resident + FEW_BYTES:
            words.append(f"{(self.resident - before.resident) >> 20} MiB more memory")
        return ", ".join(words)


def holding(pid: int, pinned: int = 0) -> Holding | None:
    """None: there is no such process."""
    try:
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
        tasks = Path(f"/proc/{pid}/task").iterdir()
        threads = Counter((task / "comm").read_text().strip() for task in tasks)
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return None
    return Holding(descriptors, threads, pages * os.sysconf("SC_PAGESIZE") - pinned)


def eventually(is_so: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> bool:
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def taken(path: Path) -> set[int]:
    """The PIDs that have a slot."""
    return {tenant.pid for tenant in segment.read(path).tenants}


def unreaped(path: Path) -> int:
    return segment.read(path).lost


def on_gpu(path: Path, pids: Iterable[int]) -> int:
    """Bytes that these tenants' slots say they have allocated, apart from the driver's own."""
    wanted = set(pids)
    tenants = [one for one in segment.read(path).tenants if one.pid in wanted]
    return sum(use.memory_bytes - use.driver_bytes for one in tenants for use in one.uses)


def on_host(path: Path, pids: Iterable[int]) -> int:
    wanted = set(pids)
    return sum(one.host_bytes for one in segment.read(path).tenants if one.pid in wanted)


def pinned(path: Path, pid: int) -> int:
    """Host memory that a tenant keeps for its next eviction, within the budget of all."""
    return sum(one.host_pinned_bytes for one in segment.read(path).tenants if one.pid == pid)


def daemon(path: Path) -> int | None:
    """One of this soak's: a daemon that ended leaves its report, and its PID may be anybody's by now."""
    shown = report.read(path)
    return shown.pid if shown and shown.pid in processes(path.parent) else None


def processes(folder: Path) -> dict[int, str]:
    """Of this soak, apart from this one: they name its folder in their environment."""
    mark = str(folder).encode()
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes():
                    found[int(entry.name)] = (entry / "comm").read_text().strip()
    return found


def is_writable(pid: int, descriptor: str) -> bool:
    text = Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text()
    flags = next(int(line.split()[1], 8) for line in text.splitlines() if line.startswith("flags:"))
    return flags & os.O_ACCMODE != os.O_RDONLY


def strange_files(pids: Iterable[int], folder: Path) -> set[str]:
    """Files in shared places that these processes have open or mapped for writing, outside the soak's folder."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
                words = line.split(maxsplit=5)
                if len(words) == 6 and "w" in words[1] and "s" in words[1]:
                    found.add(words[5])
        with contextlib.suppress(OSError):
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if is_writable(pid, entry.name):
                        found.add(os.readlink(entry))
    return {name for name in found if name.startswith(SHARED_FOLDERS) and not name.startswith(f"{folder}/")}
