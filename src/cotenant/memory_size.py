"""Amounts of memory as people write them: "20G", "1.5G", "512M", "30%" of each GPU, a number of bytes.

A limit's text is also what stands in a tenant's environment, so that an inner `run` reads what an outer one has set. In
shared memory it is a number of bytes or, with the highest bit set, millionths of each GPU's memory (as in
native/tenant/memory/quota.h). The interposer reads the same words by itself (native/tenant/amounts.h).
"""

from __future__ import annotations

import re

from cotenant.errors import USAGE, Problem

SIZE = re.compile(r"(\d+(?:\.\d*)?|\.\d+) ?(?:([KMGT])(?:i?B)?|B)?", re.ASCII | re.IGNORECASE)
SHARE = re.compile(r"(\d+(?:\.\d*)?|\.\d+) ?%", re.ASCII)
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
SHARE_OF_GPU = 1 << 63
LEAST = 1 << 20
HINT = "give a size as 20G or 512M, or a share of each GPU as 30%"


def bytes_in(text: str) -> int:
    """0: it is no size."""
    found = SIZE.fullmatch(text.strip())
    size = float(found[1]) * UNITS[(found[2] or "").upper()] if found else 0
    return int(size) if size < SHARE_OF_GPU else 0


def encoded(text: str) -> int:
    """As it stands in shared memory. Raises Problem for what is no limit."""
    text = text.strip()
    if found := SHARE.fullmatch(text):
        millionths = float(found[1]) * 10_000 + 0.5
        if 1 <= millionths < 1_000_001:
            return SHARE_OF_GPU | int(millionths)
    elif size := bytes_in(text):
        if size >= LEAST:
            return size
        if size > 0:
            raise Problem(
                f"no memory limit: '{text}'", "the least is 1M; did you forget the unit? " + HINT, USAGE
            )
    raise Problem(f"no memory limit: '{text}'", HINT, USAGE)


def limit(text: str) -> str:
    """In the one form that the interposer reads too: an option's type for click, as the next."""
    return written(encoded(text))


def limit_or_none(text: str) -> int:
    return 0 if text == "none" else encoded(text)


def size_or_none(text: str) -> int:
    """In bytes; no shares. 0: none."""
    value = limit_or_none(text)
    if value & SHARE_OF_GPU:
        raise Problem(f"no size: '{text}'", "give it as 20G or 512M, or none", USAGE)
    return value


def written(value: int) -> str:
    """Exactly: what `encoded` makes the same value of."""
    if value & SHARE_OF_GPU:
        return f"{(value & ~SHARE_OF_GPU) / 10_000:g}%"
    for unit, size in reversed(UNITS.items()):
        if value % size == 0:
            return f"{value // size}{unit}"
    return str(value)


def shown(value: int) -> str:
    """Short, for tables; "-" for a limit that is none."""
    if value == 0:
        return "-"
    return written(value) if value & SHARE_OF_GPU else size_shown(value)


def size_shown(size: int) -> str:
    for unit in "TGM":
        if size >= UNITS[unit]:
            return (
                f"{size / UNITS[unit]:.3g}{unit}"
                if size < 1000 * UNITS[unit]
                else f"{size / UNITS[unit]:.0f}{unit}"
            )
    return "0" if size == 0 else f"{size / UNITS['K']:.3g}K"
