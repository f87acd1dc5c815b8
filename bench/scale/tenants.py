"""A crowd of idle tenants on the software GPU, in one segment: a user's file, or an administrator's folder.

Each is a process that has used the GPU once (idle_tenant.c); every fourth is production, the others are opportunistic,
whose memory can move.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cotenant import segment
from cotenant.launch import native_files

HERE = Path(__file__).resolve().parent


@contextmanager
def crowd(kind: str, count: int) -> Iterator[tuple[dict[str, str], list[subprocess.Popen[str]]]]:
    """The environment in which another tenant joins them, and their processes."""
    # Not in /dev/shm's depth: a socket's path may have 107 characters only.
    with tempfile.TemporaryDirectory(prefix="cotenant-scale-") as folder:
        program = compiled(Path(folder))
        env = environment(Path(folder), kind)
        tenants: list[subprocess.Popen[str]] = []
        try:
            for number in range(count):
                tenant_class = "opportunistic" if number % 4 else "production"
                tenants.append(start(program, env | {"COTENANT_CLASS": tenant_class}))
            yield env, tenants
        finally:
            for tenant in tenants:
                tenant.kill()
                tenant.communicate()


def compiled(folder: Path) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc") or sys.exit("there is no C compiler")
    program = folder / "idle_tenant"
    subprocess.run([compiler, "-O1", HERE / "idle_tenant.c", "-o", program, "-ldl"], check=True)
    return program


def environment(folder: Path, kind: str) -> dict[str, str]:
    native = native_files.require(native_files.wire()).parent
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
