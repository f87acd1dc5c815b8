"""Finding the file of the real driver library, the way the loader would, without loading it.

The order: COTENANT_DRIVER, LD_LIBRARY_PATH, the loader's cache, the usual folders and container mounts.
Passed over: our own interposer, the toolkit's link-time stubs, and what is no shared object for this processor.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from cotenant.launch.architecture import HERE
from cotenant.launch.native_files import is_shim

LIBRARY = "libcuda.so.1"
LOADER_CACHE = Path("/etc/ld.so.cache")
SYSTEM_FOLDERS = (
    HERE.library_folder,
    f"{HERE.library_folder}/nvidia/current",
    f"{HERE.library_folder}/nvidia",  # Jetson, from JetPack 6 on
    f"{HERE.library_folder}/tegra",  # and before
    "/usr/lib64",
    "/usr/lib",
)
# NVIDIA's GPU operator has a driver's whole system there; a pod that needs its node's driver, the node's.
DRIVER_ROOT = "/run/nvidia/driver"
FOLDERS = (
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    *SYSTEM_FOLDERS,
    "/usr/lib/wsl/lib",
    *(f"{root}{folder}" for root in (DRIVER_ROOT, DRIVER_ROOT * 2) for folder in SYSTEM_FOLDERS),
    "/usr/local/cuda/compat",
)


class NoDriver(Exception):
    """No usable driver library; the text says why."""


def find(
    environment: Mapping[str, str],
    cache: Path = LOADER_CACHE,
    folders: tuple[str, ...] = FOLDERS,
) -> Path:
    if given := environment.get("COTENANT_DRIVER"):
        path = Path(given).absolute()
        if reason := unusable(path):
            raise NoDriver(f"COTENANT_DRIVER={given} {reason}")
        return path
    for candidate in candidates(environment, cache, folders):
        if not unusable(candidate):
            return candidate
    raise NoDriver("no NVIDIA driver found")


def candidates(environment: Mapping[str, str], cache: Path, folders: tuple[str, ...]) -> Iterator[Path]:
    for folder in re.split("[:;]", environment.get("LD_LIBRARY_PATH", "")):
        if folder:
            yield Path(folder).absolute() / LIBRARY
    yield from cached(LIBRARY, cache)
    for folder in folders:
        yield Path(folder) / LIBRARY
        # A driver mounted into a container may come without its links.
        yield from sorted(Path(folder).glob("libcuda.so.[0-9]*.[0-9]*"))


def unusable(path: Path) -> str:
    """Why this file cannot be the driver, or nothing."""
    try:
        with path.open("rb") as file:
            head = file.read(20)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    # e_ident: magic, 64-bit, little-endian; then e_type ET_DYN and e_machine.
    if head[:6] != b"\x7fELF\x02\x01" or head[16:20] != struct.pack("<HH", 3, HERE.elf_machine):
        return f"is not a {HERE.words} shared library"
    if "stubs" in (path.parent.name, path.resolve().parent.name):
        return "is a stub for linking, not a driver"
    if is_shim(path):
        return "is Cotenant's own interposer"
    return ""


def cached(library: str, cache: Path) -> list[Path]:
    """What the loader's cache has under this name for this processor (the format of sysdeps/generic/dl-cache.h)."""
    try:
        data = cache.read_bytes()
    except OSError:
        return []
    start = data.find(b"glibc-ld.so.cache1.1")  # an older format may come before it
    if start < 0:
        return []
    data = data[start:]
    header, entry = 48, struct.Struct("<iIIIQ")
    wanted, found = library.encode(), []
    try:
        (count,) = struct.unpack_from("<I", data, 20)
        for flags, key, value, _, _ in entry.iter_unpack(data[header : header + count * entry.size]):
            if flags == HERE.loader_cache_flags and data[key : data.index(b"\0", key)] == wanted:
                found.append(Path(data[value : data.index(b"\0", value)].decode(errors="surrogateescape")))
    except (struct.error, ValueError):
        return []
    return found
