"""Amounts as people write them: shares ("5%", "0.05"), weights ("1.5"), lengths of time ("50us", "2ms").

The text of a share or weight is also what stands in a tenant's environment, so that an inner `run` reads what an outer
one has set. In shared memory they are thousandths.
"""

from __future__ import annotations

import math
import re

from cotenant.errors import USAGE, Problem

NUMBER = re.compile(r"(\d+(?:\.\d*)?|\.\d+) ?(%?)")
TIME = re.compile(r"(\d+(?:\.\d*)?|\.\d+) ?(us|ms|s)")
UNIT_US = {"us": 1, "ms": 1000, "s": 1_000_000}
LEAST_WEIGHT, MOST_WEIGHT = 100, 100_000  # thousandths, as the next two
MOST_SLOWDOWN = 10_000
MOST_FLOOR = 900
LONGEST_STAY_US = 3_600_000_000
LONGEST_SLICE_US = 10_000_000


def thousandths(text: str) -> int | None:
    """None: it is no number."""
    found = NUMBER.fullmatch(text.strip())
    value = float(found[1]) * (10 if found[2] else 1000) if found else math.inf
    return math.floor(value + 0.5) if math.isfinite(value) else None


def percent(value: int) -> str:
    """Of thousandths."""
    return f"{value / 10:g}%"


def weight(text: str) -> str:
    """In one form, as what follows: an option's type for click."""
    found = None if "%" in text else thousandths(text)
    if found is None or not LEAST_WEIGHT <= found <= MOST_WEIGHT:
        raise Problem(f"no weight: '{text}'", "give a number from 0.1 to 100", USAGE)
    return f"{found / 1000:g}"


def slowdown(text: str) -> str:
    return share("slowdown", text, 1, MOST_SLOWDOWN)


def slowdown_or_none(text: str) -> str:
    return "0%" if text in ("none", "0%") else slowdown(text)


def floor(text: str) -> str:
    return share("floor", text, 0, MOST_FLOOR)


def share(what: str, text: str, least: int, most: int) -> str:
    found = thousandths(text)
    if found is None or not least <= found <= most:
        hint = f"give a share from {percent(least)} to {percent(most)}, as 5% or 0.05"
        raise Problem(f"no {what}: '{text}'", hint, USAGE)
    return percent(found)


def microseconds(text: str) -> int:
    """0: it is no length of time."""
    found = TIME.fullmatch(text.strip())
    us = float(found[1]) * UNIT_US[found[2]] if found else 0.0
    return round(us) if math.isfinite(us) else 0


def time_slice_us(text: str) -> int:
    """0: that of its class."""
    if text == "default":
        return 0
    us = microseconds(text)
    if not 1 <= us <= LONGEST_SLICE_US:
        raise Problem(
            f"no time slice: '{text}'", "give a length up to 10s, as 50us or 2ms, or default", USAGE
        )
    return us


def stay_us(text: str) -> int:
    """0: the default."""
    if text == "default":
        return 0
    us = microseconds(text)
    if not 1000 <= us <= LONGEST_STAY_US:
        raise Problem(
            f"no length of a stay: '{text}'", "give it as 200ms or 30s, up to 3600s, or default", USAGE
        )
    return us
