"""Which functions an ELF file has for others, and which it wants of others."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

# <elf.h>. pyelftools finds the tables; its objects, one for each symbol, take seconds on an emulated machine.
HEAD = b"\x7fELF\x02\x01"  # of 64 bits, the lowest byte first
PART = struct.Struct("<IIQQQQQQ")  # Elf64_Phdr
LOADED, DYNAMIC = 1, 2  # PT_LOAD, PT_DYNAMIC
NEEDED, NAMES, NAMES_SIZE = 1, 5, 10  # DT_NEEDED, DT_STRTAB, DT_STRSZ
SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym
KINDS = {0: "unknown", 1: "data", 2: "function", 10: "function"}  # STT_OBJECT, STT_FUNC, STT_GNU_IFUNC
BOUND_FOR_OTHERS = (1, 2)  # STB_GLOBAL, STB_WEAK
UNDEFINED = 0  # SHN_UNDEF


def exported(library: Path) -> dict[str, str]:
    """The names that it defines for others: "function" or "data"."""
    return {name: kind for name, kind, is_defined in symbols(library) if is_defined and kind != "unknown"}


def wanted(file: Path) -> set[str]:
    """The names that it wants of others."""
    return {name for name, _, is_defined in symbols(file) if not is_defined}


def symbols(file: Path) -> Iterator[tuple[str, str, bool]]:
    """Name, kind, and whether it is defined there."""
    from elftools.elf.dynamic import DynamicSegment
    from elftools.elf.elffile import ELFFile

    with file.open("rb") as opened:
        # By segment, not by section: a stripped library has no sections.
        dynamic = next(s for s in ELFFile(opened).iter_segments() if isinstance(s, DynamicSegment))
        _, symbols_at = dynamic.get_table_offset("DT_SYMTAB")
        _, names_at = dynamic.get_table_offset("DT_STRTAB")
        assert symbols_at is not None and names_at is not None
        symbols_size = dynamic.num_symbols() * SYMBOL.size
        names_size = next(dynamic.iter_tags("DT_STRSZ"))["d_val"]
        opened.seek(symbols_at)
        table = opened.read(symbols_size)
        opened.seek(names_at)
        names = opened.read(names_size)
    for name_at, about, _, section, _, _ in SYMBOL.iter_unpack(table):
        kind = KINDS.get(about & 15)
        name = names[name_at : names.index(0, name_at)].decode()
        if kind and about >> 4 in BOUND_FOR_OTHERS and name:
            yield name, kind, section != UNDEFINED


def needs(file: Path, library: str) -> bool:
    """Whether it is linked with this library. `run` asks that of every program: pyelftools takes long to load."""
    with file.open("rb") as opened:
        head = opened.read(64)
        if head[:6] != HEAD:
            return False
        (first,) = struct.unpack_from("<Q", head, 32)
        size, count = struct.unpack_from("<HH", head, 54)
        opened.seek(first)
        table = opened.read(size * count)
        parts = [PART.unpack_from(table, size * number) for number in range(count)]
        for kind, _, offset, _, _, length, _, _ in parts:
            if kind != DYNAMIC:
                continue
            opened.seek(offset)
            entries = list(struct.iter_unpack("<QQ", opened.read(length)))
            about = dict(entries)
            names_at = next(
                about[NAMES] - address + offset
                for kind, _, offset, address, _, length, _, _ in parts
                if kind == LOADED and address <= about[NAMES] < address + length
            )
            opened.seek(names_at)
            names = opened.read(about[NAMES_SIZE])
            return any(
                names[at : names.index(0, at)].decode() == library for tag, at in entries if tag == NEEDED
            )
    return False
