"""What lies where in a segment. The build writes the structures into wire.py, from native/wire/wire.h."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
from pathlib import Path

from cotenant.segment.wire import (
    MAGIC,
    OWNER_DIED,
    OWNER_MASK,
    SLOTS,
    SMALLEST_PLACE,
    VERSION,
    Figures,
    Header,
    Slot,
)

PLACE = max(SMALLEST_PLACE, mmap.PAGESIZE)  # as wire::place_bytes
SEGMENT_BYTES = PLACE * (1 + SLOTS)
LONGEST_POLICY_NAME = Header.policy.size - 1
FIGURES = tuple(field[0] for field in Figures._fields_)
UUID = re.compile(
    r"(?:GPU|MIG)-([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})", re.IGNORECASE
)


class BadSegment(Exception):
    """The segment cannot be used; the text says why."""


def check_header(header: Header, path: Path) -> None:
    """Raises BadSegment for what is none of ours."""
    if header.magic != MAGIC:
        raise BadSegment(f"{path} is not a Cotenant segment")
    if (header.version, header.slots) != (VERSION, SLOTS):
        raise BadSegment(f"{path} has layout version {header.version}, this Cotenant uses {VERSION}")
    if header.slot_bytes != PLACE:
        raise BadSegment(f"{path} was made where a slot has {header.slot_bytes} bytes, here it has {PLACE}")


def remedy(path: Path) -> str:
    """What to do about a segment that cannot be used."""
    version = version_of(path)
    if version is None or version == VERSION:
        return "`cotenant doctor` says more; --segment names another file"
    if version > VERSION:
        return f"a newer Cotenant made it: run all jobs with that one; or, when they have ended: rm -r {path}"
    return f"an older Cotenant made it: when its jobs have ended: rm -r {path}; the next one makes it anew"


def version_of(path: Path) -> int | None:
    """None: it is no segment, or cannot be read."""
    try:
        # What has the segment's name may be a pipe, which would keep us waiting.
        descriptor = os.open(
            path / "header" if path.is_dir() else path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
        )
        try:
            beginning = os.read(descriptor, Header.knobs.offset)
        finally:
            os.close(descriptor)
    except OSError:
        return None
    header = Header.from_buffer_copy(beginning.ljust(ctypes.sizeof(Header), b"\0"))
    return header.version if header.magic == MAGIC else None


def is_live(slot: Slot) -> bool:
    word = slot.owner
    return bool(word & OWNER_MASK) and not word & OWNER_DIED


def uuid_text(uuid: bytes) -> str:
    digits = uuid.hex()
    return "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def uuid_bytes(text: str) -> bytes | None:
    found = UUID.fullmatch(text.strip())
    return bytes.fromhex(found[1].replace("-", "")) if found else None
