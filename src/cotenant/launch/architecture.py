"""What differs between the processors that Cotenant runs on, as far as Python sees it."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Architecture:
    name: str  # as `uname -m` says it
    words: str
    debian: str  # as Debian calls it
    elf_machine: int  # e_machine of its libraries
    loader_cache_flags: int  # of its C library's entries in ld.so.cache
    loader: str  # the file name of the C library's loader
    largest_page: int  # bytes, of its kernels: where the segments of a library must be parted

    @property
    def elf_machine_name(self) -> str:
        """The number's name in <elf.h>."""
        return f"EM_{self.name.upper()}"

    @property
    def library_folder(self) -> str:
        """Where Debian and its kin keep libraries."""
        return f"/usr/lib/{self.name}-linux-gnu"


ARCHITECTURES = (
    Architecture(
        "x86_64",
        "64-bit x86",
        "amd64",
        elf_machine=62,
        loader_cache_flags=0x0303,
        loader="ld-linux-x86-64.so.2",
        largest_page=4096,
    ),
    Architecture(
        "aarch64",
        "64-bit ARM",
        "arm64",
        elf_machine=183,
        loader_cache_flags=0x0A03,
        loader="ld-linux-aarch64.so.1",
        largest_page=65536,
    ),
)
HERE = next((one for one in ARCHITECTURES if one.name == os.uname().machine), ARCHITECTURES[0])
