"""Where the native files of the package lie: interposer, software GPU, the segment's library, probe."""

from __future__ import annotations

import os
from pathlib import Path

from cotenant.errors import Problem


def folder() -> Path:
    """COTENANT_NATIVE is for development: a build folder laid out like the package's own."""
    override = os.environ.get("COTENANT_NATIVE")
    return Path(override).absolute() if override else Path(__file__).parents[1] / "native"


def shim() -> Path:
    return folder() / "shim" / "libcuda.so.1"


def wire() -> Path:
    return folder() / "libcotenant_wire.so"


def probe() -> Path:
    return folder() / "cotenant-probe"


def softgpu() -> Path:
    return folder() / "softgpu"


def device_files() -> dict[str, Path]:
    """The shipped software GPUs by name."""
    return {path.stem: path for path in sorted((folder() / "devices").glob("*.gpu"))}


def require(part: Path) -> Path:
    if not part.is_file():
        raise Problem(f"{part} is missing", "install the package again, or set COTENANT_NATIVE to a build")
    return part


def is_shim(path: Path) -> bool:
    """Whether this is the interposer, of this installation or of another one."""
    try:
        real = path.resolve(strict=True)
    except OSError:
        return False
    beside = real.parent.parent / "libcotenant_wire.so"
    return real.parent.name == "shim" and real.name.startswith("libcuda.so") and beside.exists()


def is_softgpu(path: Path) -> bool:
    return (path.parent / "softgpud").exists()
