"""Amounts as people write them: shares ("5%", "0.05"), weights ("1.5"), lengths of time ("50us", "2ms"), sizes of
memory ("20G", "512M", a number of bytes) and limits of it (a size, or "30%" of each GPU).

The text of a share, weight or limit is also what stands in a tenant's environment, so that an inner `run` reads what an
outer one has set; the interposer reads the same words by itself (native/tenant/amounts.h). In shared memory shares and
weights are thousandths; a limit is a number of bytes or, with the highest bit set, millionths of each GPU's memory (as
in native/tenant/memory/quota.h).
"""

from __future__ import annotations

import math
import re

from cotenant.errors import USAGE, Problem

NUMBER = re.compile(r"(\d+(?:\.\d*)?|\.\d+) ?(%?)")
TIME = re.compile(r"(\d+(?:\.\d*)?|\.\d+) ?(us|ms|s)")
TIME_UNITS_US = {"us": 1, "ms": 1000, "s": 1_000_000}
LEAST_WEIGHT, MOST_WEIGHT = 100, 100_000  # thousandths, as the next two
MOST_SLOWDOWN = 10_000
MOST_FLOOR = 900
LONGEST_STAY_US = 3_600_000_000
LONGEST_SLICE_US = 10_000_000
SIZE = re.compile(r"(\d+(?:\.\d*)?|\.\d+) ?(?:([KMGT])(?:i?B)?|B)?", re.ASCII | re.IGNORECASE)
SHARE = re.compile(r"(\d+(?:\.\d*)?|\.\d+) ?%", re.ASCII)
SIZE_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
SHARE_OF_GPU = 1 << 63
LEAST_LIMIT = 1 << 20
LIMIT_HINT = "give a size as 20G or 512M, or a share of each GPU as 30%"


def whole(text: str) -> int | None:
    """None: it is no number of at most 18 digits. Python converts neither every digit nor any number of them."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else None


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


def floor_or_none(text: str) -> str:
    return "0%" if text == "none" else floor(text)


def sms(text: str) -> str:
    return share("share of the SMs", text, 10, 1000)


def sms_at_start(text: str) -> str:
    return sms("100%" if text == "all" else text)


def sms_or_all(text: str) -> str:
    return "0%" if text == "all" else sms(text)


def share(what: str, text: str, least: int, most: int) -> str:
    found = thousandths(text)
    # 5 would be 500 %: whoever means that writes the sign.
    forgot_sign = found is not None and found >= 1000 and "%" not in text
    if found is None or forgot_sign or not least <= found <= most:
        hint = f"give a share from {percent(least)} to {percent(most)}, as 5% or 0.05"
        meant = f"; did you mean {text.strip()}%?" if forgot_sign else ""
        raise Problem(f"no {what}: '{text}'", hint + meant, USAGE)
    return percent(found)


def share_to_one(text: str) -> float:
    """0.3 of "30%" or "0.3": an option's type for click, as the next."""
    return (thousandths(share("share", text, 0, 1000)) or 0) / 1000


def share_above_zero(text: str) -> float:
    return (thousandths(share("share", text, 1, 100_000)) or 0) / 1000


def microseconds(text: str) -> int:
    """0: it is no length of time."""
    found = TIME.fullmatch(text.strip())
    us = float(found[1]) * TIME_UNITS_US[found[2]] if found else 0.0
    return round(us) if math.isfinite(us) else 0


def length_us(text: str, least_us: int, most_us: int, what: str, hint: str) -> int:
    """0: the default."""
    if text == "default":
        return 0
    us = microseconds(text)
    if not least_us <= us <= most_us:
        raise Problem(f"no {what}: '{text}'", hint, USAGE)
    return us


def time_slice_us(text: str) -> int:
    """0: that of its class."""
    hint = "give a length up to 10s, as 50us or 2ms, or default"
    return length_us(text, 1, LONGEST_SLICE_US, "time slice", hint)


def stay_us(text: str) -> int:
    hint = "give it as 200ms or 30s, up to 3600s, or default"
    return length_us(text, 1000, LONGEST_STAY_US, "length of a stay", hint)


def bytes_in(text: str) -> int:
    """0: it is no size."""
    found = SIZE.fullmatch(text.strip())
    size = float(found[1]) * SIZE_UNITS[(found[2] or "").upper()] if found else 0
    return int(size) if size < SHARE_OF_GPU else 0


def encoded_limit(text: str) -> int:
    """As it stands in shared memory. Raises Problem for what is no limit."""
    text = text.strip()
    if found := SHARE.fullmatch(text):
        millionths = float(found[1]) * 10_000 + 0.5
        if 1 <= millionths < 1_000_001:
            return SHARE_OF_GPU | int(millionths)
    elif size := bytes_in(text):
        if size >= LEAST_LIMIT:
            return size
        if size > 0:
            raise Problem(
                f"no memory limit: '{text}'", "the least is 1M; did you forget the unit? " + LIMIT_HINT, USAGE
            )
    raise Problem(f"no memory limit: '{text}'", LIMIT_HINT, USAGE)


def memory_limit(text: str) -> str:
    """In the one form that the interposer reads too: an option's type for click, as the next."""
    return limit_written(encoded_limit(text))


def encoded_limit_or_none(text: str) -> int:
    return 0 if text == "none" else encoded_limit(text)


def size_or_default(text: str) -> int:
    """In bytes; no shares. 0: the default."""
    if text == "default":
        return 0
    size = bytes_in(text)
    if size < LEAST_LIMIT:
        forgot = "the least is 1M; did you forget the unit? " if size else ""
        raise Problem(f"no size: '{text}'", forgot + "give it as 20G or 512M, or default", USAGE)
    return size


def headroom_or_default(text: str) -> int:
    """1 + bytes, as it stands in shared memory. 0: the default."""
    return 1 if text == "0" else (size := size_or_default(text)) and 1 + size


def limit_written(value: int) -> str:
    """Exactly: what `encoded_limit` makes the same value of."""
    if value & SHARE_OF_GPU:
        return f"{(value & ~SHARE_OF_GPU) / 10_000:g}%"
    for unit, size in reversed(SIZE_UNITS.items()):
        if value % size == 0:
            return f"{value // size}{unit}"
    return str(value)


def limit_shown(value: int) -> str:
    """Short, for tables; "-" for a limit that is none."""
    if value == 0:
        return "-"
    return limit_written(value) if value & SHARE_OF_GPU else size_shown(value)


def size_shown(size: int) -> str:
    for unit in "TGM":
        if size >= SIZE_UNITS[unit]:
            return (
                f"{size / SIZE_UNITS[unit]:.3g}{unit}"
                if size < 1000 * SIZE_UNITS[unit]
                else f"{size / SIZE_UNITS[unit]:.0f}{unit}"
            )
    return "0" if size == 0 else f"{size / SIZE_UNITS['K']:.3g}K"


def duration_shown(us: float | None) -> str:
    """Short, for tables; empty: not known."""
    if us is None:
        return ""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if us >= 0.9995 * size:
            return f"{us / size:.{2 if us < 10 * size else 1 if us < 100 * size else 0}f}{unit}"
    return f"{us:.0f}us"


def count_shown(count: int) -> str:
    """Short, for tables."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= 10 * size:
            return f"{count / size:.0f}{unit}"
    return str(count)


def age_shown(seconds: float) -> str:
    """Short, for tables."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f}{unit}"
    return f"{seconds:.0f}s"
