"""Kernel profiles as the interposer reads them (native/tenant/kernel_profile.h): a table beside each profile, of the
kernels whose class or time is known, by a checksum of their names. `cotenant run` makes one where the profile is newer.
"""

from __future__ import annotations

import contextlib
import struct
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from cotenant import output_files
from cotenant.errors import Problem
from cotenant.profile import store
from cotenant.profile.columns import KernelClass
from cotenant.profile.kernel import Kernel

VARIABLE = "COTENANT_KERNEL_PROFILES"
MAGIC = b"cokernel"
VERSION = 1
HEAD = struct.Struct("<8sIIQQ")
ENTRY = struct.Struct("<10If")
LONGEST_NAME = 1024  # bytes: the interposer asks for no more
LARGEST = 2**32 - 1


def folder(environment: Mapping[str, str], dry: bool = False) -> Path | None:
    """Where the tables are, each as new as its profile; None: nothing is kept. Nobody needs a profile: what cannot be
    read or written is left out. `dry`: nothing is written."""
    place = store.folder(environment)
    profiles = sorted((place / "kernels").glob("*.json")) if place else []
    for profile in profiles if not dry else ():
        with contextlib.suppress(OSError, store.Unreadable, Problem):
            refresh(profile)
    return profiles[0].parent if profiles else None


def refresh(profile: Path) -> None:
    """Raises OSError, Problem or store.Unreadable."""
    table = profile.with_suffix(".table")
    of = head_of(profile)
    with contextlib.suppress(FileNotFoundError), table.open("rb") as file:
        known = file.read(HEAD.size)
        if (
            len(known) == HEAD.size
            and HEAD.unpack(known)[:2] == (MAGIC, VERSION)
            and HEAD.unpack(known)[3:] == of
        ):
            return
    entries = sorted(entries_of(store.profile_in(profile).kernels.values()))[: store.MOST_KERNELS]
    head = HEAD.pack(MAGIC, VERSION, len(entries), *of)
    with output_files.replaced(table) as beside:
        beside.write_bytes(head + b"".join(ENTRY.pack(*one) for one in entries))


def head_of(profile: Path) -> tuple[int, int]:
    """What tells one state of the profile from another."""
    found = profile.stat()
    return found.st_mtime_ns, found.st_size


def entries_of(kernels: Iterable[Kernel]) -> Iterable[tuple[int | float, ...]]:
    for one in kernels:
        sizes = (*one.grid, *one.block, one.shared_bytes)
        is_sized = all(0 <= size <= LARGEST for size in sizes)
        if one.kind != "kernel" or not one.name or not is_sized:
            continue
        name = one.name.encode(errors="replace")[:LONGEST_NAME]
        bound = one.columns.kernel_class
        known = bound if bound is not KernelClass.copy else KernelClass.unknown
        us = one.mean_us if one.samples and one.mean_us < 1e7 else 0.0
        yield zlib.crc32(name), len(name), *sizes, int(known), us
