"""The daemon's settings in a segment: the daemon puts them into effect, `ctl` changes them live, and `cotenant config
show` says what holds and where it comes from.

A knob in the segment's header that is 0, or that the daemon has written itself, is the settings' to change; any other
was set by `ctl`, and stays until `ctl` says "default". What the daemon has written is in SEGMENT.daemon.settings, which
outlives it:

    {"problem", "settings": {NAME: {"value", "source", "file"}}}
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cotenant import segment, units
from cotenant.config import files, settings
from cotenant.daemon import files as daemon_files
from cotenant.daemon import lock
from cotenant.errors import Problem
from cotenant.segment.snapshot import memory_knobs_in
from cotenant.tenants import memory_knobs

LOOK_SECONDS = 1.0
MOST_BYTES = 1 << 20
Patience = Callable[[], contextlib.AbstractContextManager[None]]
KNOBS = ("capacity", "headroom", "host_memory", "stay")
DEFAULT, FLAG, VARIABLE, LIVE = "default", "flag", "environment", "ctl"


@dataclass(frozen=True)
class Holds:
    """What holds of a setting; of a knob 0 is the default. The source is one of the above, "user file" or "machine
    file", which is then named."""

    value: int | float | str
    source: str = DEFAULT
    file: str = ""

    def in_words(self) -> str:
        told = {FLAG: "flag", VARIABLE: "environment variable", LIVE: "set live by ctl", DEFAULT: "default"}
        return f"{self.source} {self.file}" if self.file else told.get(self.source, self.source)


def knob_in_words(name: str, value: int) -> str:
    if not value:
        return settings.BY_KEY[f"daemon.{name}"].otherwise
    if name == "stay":
        return f"{value}ms"
    size = value - (name == "headroom")
    return units.limit_written(size) if size else "0"


def encoded(name: str, value: Any) -> int | float | str:
    """As the segment has it: of a parsed setting."""
    found: int | float | str = -(-value // 1000) if name == "stay" else value
    return found


def of_daemon(given: Mapping[str, Holds], found: Mapping[str, files.Set], policy: str) -> dict[str, Holds]:
    """What shall hold, by name: what the daemon was given by flag or variable, else what a file says."""
    wanted = {}
    for setting in settings.SETTINGS:
        if setting.table != "daemon":
            continue
        name = setting.name
        default = policy if name == "policy" else 0 if name in KNOBS else setting.default
        wanted[name] = given.get(name, Holds(default))
        if name not in given and setting.key in found:
            said = found[setting.key]
            wanted[name] = Holds(
                encoded(name, setting.parsed(said.value)), f"{said.file.which} file", str(said.file.path)
            )
    return wanted


class LiveSettings:
    """Of the daemon of a segment; looks at the files once in LOOK_SECONDS at most."""

    def __init__(self, path: Path, given: Mapping[str, Holds], default_policy: str) -> None:
        self.path = path
        self.given = given
        self.default_policy = default_policy
        self.files = files.files(os.environ)
        self.stamps: list[object] = [files]  # none of theirs: they are read at the first look
        self.good: dict[str, dict[str, files.Set]] = {}  # by file: what it said when it was last right
        self.problem = ""
        self.wanted = of_daemon(given, {}, default_policy)
        self.applied = read(path).applied
        self.written: object = None
        self.next_look = 0.0

    def follow(self, header: segment.Header, patience: Patience = contextlib.nullcontext) -> None:
        """Puts into effect what has changed. `patience` ends the reading of a file whose policy hangs."""
        if time.monotonic() < self.next_look:
            return
        self.next_look = time.monotonic() + LOOK_SECONDS
        stamps: list[object] = [file.stamp for file in self.files]
        if stamps != self.stamps:
            self.stamps = stamps
            self.read_files(patience)
        try:
            self.apply(header)
        except Problem as problem:
            self.problem = f"{problem.message}: {problem.hint}"
        self.write()

    def read_files(self, patience: Patience) -> None:
        problems = []
        for file in self.files:
            try:
                with patience():
                    found = {key: files.Set(value, file) for key, value in files.read(file, deep=True)}
                self.good[file.which] = found
            except Problem as problem:
                problems.append(f"{problem.message}; hint: {problem.hint}")
            except BaseException as error:  # whatever the policy's file does while it is loaded
                from cotenant.policies import border

                problems.append(f"{file.path}: its policy cannot be loaded ({border.shown(error)})")
        self.problem = "; ".join(problems)
        merged = self.good.get("machine", {}) | self.good.get("user", {})
        self.wanted = of_daemon(self.given, merged, self.default_policy)

    def apply(self, header: segment.Header) -> None:
        change = {}
        for name, values in memory_knobs_in(header).items():
            ours = (0, self.applied.get(name, 0))
            value = self.wanted[name].value
            if values and all(one in ours for one in values) and any(one != value for one in values):
                change[name] = int(value)
        if change:
            stay = change.pop("stay", None)
            memory_knobs.change(self.path, memory_knobs.Change(**change, stay_ms=stay))
            self.applied |= change | ({} if stay is None else {"stay": stay})

    def write(self) -> None:
        content = {
            "problem": self.problem,
            "applied": self.applied,
            "settings": {name: asdict(holds) for name, holds in self.wanted.items()},
        }
        if content == self.written:
            return
        try:
            daemon_files.replace(self.path, file_for(self.path), json.dumps(content).encode())
            self.written = json.loads(json.dumps(content))
        except OSError:
            pass  # a full disk: it is tried again

    def end(self) -> None:
        """Leaves what the next daemon needs to know; nothing where it has put nothing into effect."""
        if not any(self.applied.values()):
            with contextlib.suppress(OSError):
                file_for(self.path).unlink()


@dataclass(frozen=True)
class Written:
    """What a daemon has left."""

    problem: str
    applied: dict[str, int]
    settings: dict[str, Holds]


NOTHING = Written("", {}, {})


def file_for(path: Path) -> Path:
    return daemon_files.beside(path, ".settings")


def read(path: Path) -> Written:
    """Nothing where there is none, or it is not one of ours."""
    try:
        with os.fdopen(daemon_files.open_trusted(path, file_for(path), os.O_RDONLY), "rb") as file:
            found = json.loads(file.read(MOST_BYTES))
        return Written(
            str(found["problem"]),
            {str(name): int(value) for name, value in found["applied"].items()},
            {name: holds_of(name, found["settings"][name]) for name in names() if name in found["settings"]},
        )
    except (OSError, Problem, OverflowError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return Written("", {}, {})


def names() -> Iterable[str]:
    return (setting.name for setting in settings.SETTINGS if setting.table == "daemon")


def holds_of(name: str, found: Any) -> Holds:
    value, source, file = found["value"], found["source"], found["file"]
    if not isinstance(value, int | float | str) or not isinstance(source, str) or not isinstance(file, str):
        raise TypeError(found)
    return Holds(int(value) if name in KNOBS else value, source, file)


def problem_of_daemon(path: Path) -> str:
    """What is wrong with the files of the daemon that runs; empty: nothing, or none runs."""
    try:
        return read(path).problem if os.path.lexists(path) and lock.is_held(path) else ""
    except Problem:
        return ""
