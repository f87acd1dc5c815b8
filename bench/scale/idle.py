"""What idle tenants cost: the CPU time of all of them together, as a share of one core.

Each is a process on the software GPU that has used it once (idle_tenant.c); every fourth is production, the others are
opportunistic, whose memory can move. They share one segment: a user's file, or an administrator's folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cotenant import parts, segment

HERE = Path(__file__).resolve().parent
MOST = 0.01
SETTLE_SECONDS = 3.0  # after its last work a tenant is awake for a while


@dataclass(frozen=True)
class Figure:
    kind: str  # of the segment
    tenants: int
    share: float

    @property
    def is_missed(self) -> bool:
        return self.tenants <= 64 and self.share > MOST


def measure(counts: Sequence[int], seconds: float) -> list[Figure]:
    found = []
    print(f"{'SEGMENT':<7} {'TENANTS':>7} {'OF A CORE':>10}")
    with tempfile.TemporaryDirectory(prefix="cotenant-bench-", dir="/dev/shm") as beside:
        program = Path(beside) / "idle_tenant"
        compiler = shutil.which("gcc") or shutil.which("cc") or sys.exit("there is no C compiler")
        subprocess.run([compiler, "-O1", HERE / "idle_tenant.c", "-o", program, "-ldl"], check=True)
        for kind in ("file", "folder"):
            for count in counts:
                figure = Figure(kind, count, share_of_a_core(program, kind, count, seconds))
                found.append(figure)
                print(f"{kind:<7} {count:>7} {figure.share:>10.2%}", flush=True)
    return found


def share_of_a_core(program: Path, kind: str, count: int, seconds: float) -> float:
    # Not in /dev/shm's depth: a socket's path may have 107 characters only.
    with tempfile.TemporaryDirectory(prefix="cotenant-scale-") as folder:
        env = environment(Path(folder), kind)
        tenants: list[subprocess.Popen[str]] = []
        try:
            for number in range(count):
                tenant_class = "opportunistic" if number % 4 else "production"
                tenants.append(start(program, env | {"COTENANT_CLASS": tenant_class}))
            time.sleep(SETTLE_SECONDS)
            shown = len(segment.read(Path(env["COTENANT_SEGMENT"])).tenants)
            if shown != count:
                sys.exit(f"{shown} of {count} tenants are in the segment")
            began, before = time.monotonic(), cpu_seconds(tenants)
            time.sleep(seconds)
            return (cpu_seconds(tenants) - before) / (time.monotonic() - began)
        finally:
            for tenant in tenants:
                tenant.kill()
                tenant.communicate()


def environment(folder: Path, kind: str) -> dict[str, str]:
    native = parts.require(parts.wire()).parent
    env = {name: value for name, value in os.environ.items() if not name.startswith("COTENANT_")} | {
        "LD_LIBRARY_PATH": str(native / "softgpu"),
        "COTENANT_SOFTGPU": "small",
        "COTENANT_SOFTGPU_DIR": str(folder / "gpu"),
        "COTENANT_SEGMENT": str(folder / "segment"),
    }
    (folder / "gpu").mkdir()
    if kind == "file":
        segment.ensure(folder / "segment")
    else:
        command = [sys.executable, "-m", "cotenant", "segment", "create", str(folder / "segment")]
        subprocess.run(command, env=env, check=True, stderr=subprocess.DEVNULL)
    return env | {
        "LD_PRELOAD": str(native / "shim" / "libcuda.so.1"),
        "COTENANT_DRIVER": str(native / "softgpu" / "libcuda.so.1"),
    }


def start(program: Path, env: dict[str, str]) -> subprocess.Popen[str]:
    tenant = subprocess.Popen([program], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if not tenant.stdout or tenant.stdout.readline() != "here\n":
        sys.exit("a tenant did not start")
    return tenant


def cpu_seconds(tenants: Sequence[subprocess.Popen[str]]) -> float:
    """Of all their threads, by the scheduler's own count: the ticks of /proc/PID/stat are too coarse."""
    return (
        sum(
            int((thread / "schedstat").read_text().split()[0])
            for tenant in tenants
            for thread in Path(f"/proc/{tenant.pid}/task").iterdir()
        )
        / 1e9
    )
