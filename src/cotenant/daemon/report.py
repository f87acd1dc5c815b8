"""What the daemon shows: SEGMENT.daemon.json, whole at every moment, for `cotenant explain`.

    {"pid", "policy", "since", "problem",
     "tenants": [{"pid", "started", "gpu", "decisions": [{"at", "text", "about"}]}],
     "gpus": [{"gpu", "problem", "state": the fields of GpuState, or null, "processes": [PID],
               "at_work": [{"pid", "started", "clock_mhz"}]}],
     "promises": [{"pid", "started", "gpu", "kept", "since_ns"}]}

`promises` are the daemon's verdicts (tenants/verdicts.py). `about` is [PID, when it was started] of the tenant that a
decision is about, where that is another. Times are seconds since 1970, but for that of a GPU's state and of a verdict.
A decision's time is that of the report in which it was first seen: controllers know no clock.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cotenant.daemon import files
from cotenant.tenants.verdicts import NO_VERDICTS, Verdict

if TYPE_CHECKING:  # `cotenant run` needs this file, and is to start quickly
    from cotenant.daemon.clocks import Reading

Key = tuple[int, int, int]  # PID, when it was started, GPU
SHORTEST_PAUSE_SECONDS = 0.25
PAUSE_FOR_COST = (
    50  # a report that took a millisecond is followed by a pause of 50: it takes 2 % of a core at most
)
GPU_PAUSE_SECONDS = 1.0  # where there is no other news than clocks and power, which are never the same
MOST_BYTES = 32 << 20
FIGURES = ("clock_mhz", "highest_mhz", "power_w", "power_limit_w")
NO_GPUS: Mapping[int, Reading] = {}
NO_CLOCKS: Mapping[Key, float] = {}


def file_for(path: Path) -> Path:
    return files.beside(path, ".json")


def check(path: Path) -> None:
    """Raises a Problem where another user has planted the file that the daemon would write."""
    file = file_for(path)
    for one in (file, files.new(file)):
        files.check(path, one)


Process = tuple[int, int]  # PID, when it was started


class Told(str):
    """A sentence of a policy; `about` is another tenant than the one asked about."""

    about: Process | None

    def __new__(cls, text: str, about: Process | None = None) -> Told:
        made = super().__new__(cls, text)
        made.about = about
        return made


@dataclass(frozen=True)
class Decision:
    at: float
    text: str
    about: Process | None = None  # another tenant than the one asked about


def decided(now: float, said: str) -> Decision:
    return Decision(now, str(said), getattr(said, "about", None))


class Report:
    def __init__(self, path: Path) -> None:
        self.path, self.file = path, file_for(path)
        self.since = time.time()
        self.decisions: dict[Key, list[Decision]] = {}
        self.written: object = None
        self.written_gpus: object = None
        self.next_write = 0.0
        self.next_gpus = 0.0

    def is_due(self) -> bool:
        return time.monotonic() >= self.next_write

    def pause(self, cost_seconds: float) -> None:
        """After one that cost so much CPU time to gather and write."""
        self.next_write = time.monotonic() + max(SHORTEST_PAUSE_SECONDS, PAUSE_FOR_COST * cost_seconds)

    def show(
        self,
        policy: str,
        problem: str,
        lines: Mapping[Key, Sequence[str]],
        gpus: Mapping[int, Reading] = NO_GPUS,
        clocks: Mapping[Key, float] = NO_CLOCKS,
        promises: Mapping[Key, Verdict] = NO_VERDICTS,
    ) -> None:
        """`clocks`: the mean clock of late while a tenant had work."""
        now = time.time()
        self.decisions = {key: self.stamped_for(key, said, now) for key, said in lines.items()}
        content = {
            "pid": os.getpid(),
            "policy": policy,
            "since": self.since,
            "problem": problem,
            "tenants": [
                {"pid": pid, "started": started, "gpu": gpu, "decisions": [vars(one) for one in decisions]}
                for (pid, started, gpu), decisions in self.decisions.items()
            ],
            "promises": [
                {"pid": pid, "started": started, "gpu": gpu, "kept": one.kept, "since_ns": one.since_ns}
                for (pid, started, gpu), one in promises.items()
            ],
        }
        states = [
            {
                "gpu": gpu,
                "problem": one.problem,
                "state": asdict(one.state) if one.state else None,
                "processes": one.processes,
                "at_work": [
                    {"pid": pid, "started": started, "clock_mhz": mhz}
                    for (pid, started, on), mhz in clocks.items()
                    if on == gpu
                ],
            }
            for gpu, one in gpus.items()
        ]
        is_news = states != self.written_gpus and time.monotonic() >= self.next_gpus
        if content != self.written or is_news:
            # A full disk is no reason to stop looking after the tenants.
            with contextlib.suppress(OSError):
                files.replace(self.path, self.file, json.dumps(content | {"gpus": states}).encode())
                self.written, self.written_gpus = content, states
                self.next_gpus = time.monotonic() + GPU_PAUSE_SECONDS

    def stamped_for(self, key: Key, said: Sequence[str], now: float) -> list[Decision]:
        """One that has just come is told what was decided before: the times are those of the ones who were there."""
        before = self.decisions.get(key)
        there = [told for (_, _, gpu), told in self.decisions.items() if gpu == key[2]]
        befores = [before] if before is not None else [[], *there]
        return min((stamped(said, one, now) for one in befores), key=lambda told: sum(one.at for one in told))

    def remove(self) -> None:
        # That of a new segment with the old one's name stays.
        if (shown := read(self.path)) and shown.pid != os.getpid():
            return
        for file in (self.file, files.new(self.file)):
            with contextlib.suppress(OSError):
                file.unlink()


def stamped(said: Sequence[str], before: Sequence[Decision], now: float) -> list[Decision]:
    """The newest are first: what follows the new ones is what was there. A policy that begins with its present figures
    says other ones each time: those that it said before are gone, and what followed them was there."""
    known = [one.text for one in before]
    for new in range(len(said) + 1):
        kept = len(said) - new
        for gone in range(len(known) - kept + 1):
            if list(said[new:]) == known[gone : gone + kept]:
                return [*(decided(now, text) for text in said[:new]), *before[gone : gone + kept]]
    raise AssertionError("nothing follows at the latest")


@dataclass(frozen=True)
class About:
    """What is shown of a tenant on a GPU."""

    pid: int
    started: int
    gpu: int
    decisions: tuple[Decision, ...]


@dataclass(frozen=True)
class Shown:
    pid: int
    policy: str
    problem: str
    tenants: tuple[About, ...]
    gpus: Mapping[int, Reading]
    clocks: Mapping[Key, float]  # MHz, on average, while it had work
    promises: Mapping[Key, Verdict]


def read(path: Path) -> Shown | None:
    """None: there is none, or it is not one of ours. Raises a Problem where another user has planted it."""
    try:
        with os.fdopen(files.open_trusted(path, file_for(path), os.O_RDONLY), "rb") as file:
            found = json.loads(file.read(MOST_BYTES))
        return Shown(
            whole(found["pid"]),
            text(found["policy"]),
            text(found["problem"]),
            tuple(about(one) for one in found["tenants"]),
            {whole(one["gpu"]): reading(one) for one in found.get("gpus", ())},
            {
                (whole(one["pid"]), whole(one["started"]), whole(gpu["gpu"])): number(one["clock_mhz"])
                for gpu in found.get("gpus", ())
                for one in gpu["at_work"]
            },
            {
                (whole(one["pid"]), whole(one["started"]), whole(one["gpu"])): Verdict(
                    truth(one["kept"]), whole(one["since_ns"])
                )
                for one in found.get("promises", ())
            },
        )
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def about(found: Any) -> About:
    decisions = tuple(
        Decision(moment(one["at"]), text(one["text"]), process(one.get("about")))
        for one in found["decisions"]
    )
    return About(whole(found["pid"]), whole(found["started"]), whole(found["gpu"]), decisions)


def process(found: Any) -> Process | None:
    if found is None:
        return None
    pid, started = found
    return whole(pid), whole(started)


def reading(found: Any) -> Reading:
    from cotenant.daemon.clocks import Reading
    from cotenant.policies.interface import GpuState

    state, problem = found["state"], text(found["problem"])
    processes = tuple(whole(one) for one in found.get("processes", ()))
    if state is None:
        return Reading(problem=problem, processes=processes)
    words = tuple(text(one) for one in state["slowed_by"])
    figures = {name: state[name] if state[name] is None else number(state[name]) for name in FIGURES}
    return Reading(GpuState(number(state["at_us"]), slowed_by=words, **figures), problem, processes)


def whole(found: Any) -> int:
    if type(found) is not int:
        raise ValueError(found)
    return found


def truth(found: Any) -> bool:
    if type(found) is not bool:
        raise ValueError(found)
    return found


def moment(found: Any) -> float:
    """One that `time.localtime` can show."""
    if number(found) >= 2**40:
        raise ValueError(found)
    return float(found)


def number(found: Any) -> float:
    if type(found) not in (int, float) or not 0 <= found < 2**63:
        raise ValueError(found)
    return float(found)


def text(found: Any) -> str:
    if not isinstance(found, str):
        raise ValueError(found)
    return found
