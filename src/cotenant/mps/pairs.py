"""What overlap did to pairs of programs, kept over runs: the file pairs.json under the user's cache.

    {"version": 1, "pairs": [{"gpu", "production", "beside", "together", "strict", "overlap", "sm_share", "at"}]}

`gpu` is its UUID, `together` whether both went through one MPS daemon, `strict` and `overlap` the slowdown of
production while the other ran in its gaps, and at any time, with `sm_share` of the SMs (all where it is missing); `at`
is in seconds since 1970. What was seen counts half as much with every week that passes, and is forgotten after
FORGOTTEN_SECONDS. The daemon writes the file, and merges it with what another daemon of the user has written since;
`run --share auto` reads it. A file of another version, or one that is damaged, is not used, and the next one takes its
place.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from cotenant import private_folders
from cotenant.mps.last_runs import cache_in

# `run` seldom has a pair to tell of, and to load what policies are made of is a tenth of its start.
if TYPE_CHECKING:
    from cotenant.policies.interface import Met, Pair

VERSION = 1
MOST_BYTES, MOST_PAIRS = 1 << 20, 1000
LONGEST_NAME = 64
MOST_SLOWDOWN = 100.0
LEAST_SM_SHARE = 0.01
HALF_LIFE_SECONDS = 7 * 86400.0
FORGOTTEN_SECONDS = 30 * 86400.0
# What differs by less from what is written is not written again before an hour is over.
NEWS, NEWS_SECONDS = 0.02, 3600.0

Key: TypeAlias = "tuple[str, Pair]"  # the GPU's UUID, and the two programs on it


@dataclass(frozen=True)
class Seen:
    overlap: float
    strict: float
    at: float  # seconds since 1970
    sm_share: float = 1.0

    def met(self, now: float) -> Met:
        from cotenant.policies.interface import Met

        trust = 0.5 ** (max(now - self.at, 0.0) / HALF_LIFE_SECONDS)
        return Met(self.overlap, self.strict, trust, self.sm_share)

    def is_news_after(self, earlier: Seen | None) -> bool:
        if earlier is None or self.at - earlier.at > NEWS_SECONDS or self.sm_share != earlier.sm_share:
            return True
        return abs(self.overlap - earlier.overlap) >= NEWS or (self.overlap > NEWS) != (
            earlier.overlap > NEWS
        )


def file_in(environment: Mapping[str, str]) -> Path | None:
    """None: there is no cache."""
    cache = cache_in(environment)
    return cache / "pairs.json" if cache else None


def read(file: Path | None, now: float | None = None) -> dict[Key, Seen]:
    """What is not older than FORGOTTEN_SECONDS; empty where nothing can be read."""
    now = time.time() if now is None else now
    try:
        if file is None:
            return {}
        with file.open("rb") as opened:
            found = json.loads(opened.read(MOST_BYTES))
        if found["version"] != VERSION:
            return {}
        entries = found["pairs"]
        return {key: seen for key, seen in map(entry, entries) if now - seen.at < FORGOTTEN_SECONDS}
    except (OSError, OverflowError, ValueError, TypeError, KeyError, RecursionError):
        return {}


def entry(found: Any) -> tuple[Key, Seen]:
    names = [found[name] for name in ("gpu", "production", "beside")]
    if not all(isinstance(one, str) and 0 < len(one) <= LONGEST_NAME for one in names):
        raise ValueError(found)
    slowdowns = [float(found[name]) for name in ("overlap", "strict")]
    at, sm_share = float(found["at"]), float(found.get("sm_share", 1.0))
    if (
        not LEAST_SM_SHARE <= sm_share <= 1
        or not all(-1 <= one <= MOST_SLOWDOWN for one in slowdowns)
        or not 0 <= at < 2**40
    ):
        raise ValueError(found)
    from cotenant.policies.interface import Pair

    pair = Pair(names[1], names[2], bool(found["together"]))
    return (names[0], pair), Seen(slowdowns[0], slowdowns[1], at, sm_share)


def on_gpu(known: Mapping[Key, Seen], gpu: str, now: float | None = None) -> dict[Pair, Met]:
    """As a policy is told it."""
    now = time.time() if now is None else now
    return {pair: seen.met(now) for (uuid, pair), seen in known.items() if uuid == gpu}


def keep(file: Path | None, gpu: str, learned: Mapping[Pair, Met], now: float | None = None) -> bool:
    """Adds it to the file. False: another process writes it just now, or it cannot be written."""
    now = time.time() if now is None else now
    new: dict[Key, Seen] = {}
    for pair, met in learned.items():
        if all(0 < len(name) <= LONGEST_NAME for name in (gpu, pair.production, pair.beside)):
            sm_share = min(max(met.sm_share, LEAST_SM_SHARE), 1.0)
            new[(gpu, pair)] = Seen(bounded(met.overlap), bounded(met.strict), now, sm_share)
    if file is None or not new:
        return True
    with contextlib.suppress(OSError), held(file):
        known = read(file, now)
        if not any(seen.is_news_after(known.get(key)) for key, seen in new.items()):
            return True
        newest = sorted((known | new).items(), key=lambda one: one[1].at)[-MOST_PAIRS:]
        entries = [
            {
                "gpu": uuid,
                "production": pair.production,
                "beside": pair.beside,
                "together": pair.together,
                "strict": round(seen.strict, 4),
                "overlap": round(seen.overlap, 4),
                "sm_share": round(seen.sm_share, 4),
                "at": round(seen.at),
            }
            for (uuid, pair), seen in newest
        ]
        unfinished = file.with_name(f"{file.name}.new")
        unfinished.write_text(json.dumps({"version": VERSION, "pairs": entries}, indent=1) + "\n")
        unfinished.replace(file)
        return True
    return False


@contextlib.contextmanager
def held(file: Path) -> Iterator[None]:
    """Nobody else of ours writes it meanwhile."""
    private_folders.make(file.parent)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(file.with_name(f".{file.name}.lock"), flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def bounded(slowdown: float) -> float:
    return min(max(slowdown, -1.0), MOST_SLOWDOWN)


def of_job(known: Mapping[Key, Seen], job: str, is_production: bool) -> Seen | None:
    """What was last seen of this job's overlap with any other, in MPS."""
    own = [
        seen
        for (_, pair), seen in known.items()
        if pair.together and job == (pair.production if is_production else pair.beside)
    ]
    return max(own, key=lambda seen: seen.at, default=None)
