"""Amounts as Kubernetes writes them (`8Gi`, `1500m`, `1e3`), as whole numbers."""

from __future__ import annotations

import functools
import re
from fractions import Fraction
from math import ceil

from cotenant.errors import USAGE, Problem

# Bounded, since strangers write them: Python computes for hours with a long exponent, and reads no long integer.
QUANTITY = re.compile(
    r"([+-]?(?:\d{1,50}(?:\.\d{0,50})?|\.\d{1,50}))(?:[eE]([+-]?\d{1,3})|([KMGTPE]i|[numkMGTPE])?)", re.ASCII
)
UNITS = {
    "": Fraction(1),
    **{unit: Fraction(10) ** (3 * power) for unit, power in zip("num", (-3, -2, -1), strict=True)},
    **{unit: Fraction(10) ** (3 * power) for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Fraction(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
}


@functools.lru_cache(4096)
def whole(text: str | int) -> int:
    """Rounded up, as Kubernetes rounds what has to be a whole number. Raises Problem."""
    return ceil(exact(text))


def exact(text: str | float) -> Fraction:
    """Raises Problem."""
    found = QUANTITY.fullmatch(str(text).strip())
    if not found:
        raise Problem(f"no quantity: '{text}'", "give it as Kubernetes has it: 8Gi, 500M, 20", USAGE)
    number, exponent, unit = found.groups()
    return Fraction(number) * (Fraction(10) ** int(exponent) if exponent else UNITS[unit or ""])


def of_bytes(size: int) -> str:
    """In the largest binary unit that says it exactly."""
    for unit in reversed("KMGTPE"):
        if size and size % int(UNITS[f"{unit}i"]) == 0:
            return f"{size // int(UNITS[f'{unit}i'])}{unit}i"
    return str(size)
