"""What an ELF file says of itself: who loads it, what it is linked with, which names it has for others and wants."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

# <elf.h>. pyelftools finds the tables; its objects, one for each symbol, take seconds on an emulated machine.
HEAD = b"\x7fELF\x02\x01"  # of 64 bits, the lowest byte first
PART = struct.Struct("<II5Q8x")  # Elf64_Phdr
LOADED, DYNAMIC, INTERPRETER = 1, 2, 3  # PT_LOAD, PT_DYNAMIC, PT_INTERP
NEEDED, NAMES, NAMES_SIZE = 1, 5, 10  # DT_NEEDED, DT_STRTAB, DT_STRSZ
SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym
KINDS = {0: "unknown", 1: "data", 2: "function", 10: "function"}  # STT_OBJECT, STT_FUNC, STT_GNU_IFUNC
BOUND_FOR_OTHERS = (1, 2)  # STB_GLOBAL, STB_WEAK
UNDEFINED = 0  # SHN_UNDEF
LONGEST_PATH = 4096
MOST_BYTES = 1 << 62  # of a file, whatever its head says


class Part(NamedTuple):
    kind: int
    flags: int
    offset: int  # in the file
    address: int  # in memory
    physical: int
    length: int  # in the file
    size: int  # in memory


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


def parts(opened: BinaryIO) -> list[Part]:
    """Of what the kernel loads; none, if this is no file of ours."""
    opened.seek(0)
    head = opened.read(64)
    if len(head) < 64 or head[:6] != HEAD:
        return []
    (first,) = struct.unpack_from("<Q", head, 32)
    size, count = struct.unpack_from("<HH", head, 54)
    if size != PART.size or first > MOST_BYTES:
        return []
    opened.seek(first)
    table = opened.read(size * count)
    return [Part._make(fields) for fields in PART.iter_unpack(table[: len(table) // size * size])]


def interpreter(file: Path) -> bytes | None:
    """The path of its loader. Empty: it is loaded without one; None: this is no file of ours."""
    with file.open("rb") as opened:
        found = parts(opened)
        for part in found:
            if part.kind == INTERPRETER:
                opened.seek(min(part.offset, MOST_BYTES))
                return opened.read(min(part.length, LONGEST_PATH)).rstrip(b"\0")
    return b"" if found else None


def needs(file: Path, library: str) -> bool:
    """Whether it is linked with this library. `run` asks that of every program: pyelftools takes long to load."""
    with file.open("rb") as opened:
        found = parts(opened)
        for part in found:
            if part.kind != DYNAMIC:
                continue
            opened.seek(part.offset)
            entries = list(struct.iter_unpack("<QQ", opened.read(part.length)))
            about = dict(entries)
            names_at = next(
                about[NAMES] - one.address + one.offset
                for one in found
                if one.kind == LOADED and one.address <= about[NAMES] < one.address + one.length
            )
            opened.seek(names_at)
            names = opened.read(about[NAMES_SIZE])
            return any(
                names[at : names.index(0, at)].decode() == library for tag, at in entries if tag == NEEDED
            )
    return False
