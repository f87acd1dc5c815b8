"""What lies where in a segment. The build writes the structures into wire.py, from native/wire/wire.h."""

from __future__ import annotations

import mmap
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


def is_live(slot: Slot) -> bool:
    word = slot.owner
    return bool(word & OWNER_MASK) and not word & OWNER_DIED


def uuid_text(uuid: bytes) -> str:
    digits = uuid.hex()
    return "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def uuid_bytes(text: str) -> bytes | None:
    found = UUID.fullmatch(text.strip())
    return bytes.fromhex(found[1].replace("-", "")) if found else None
