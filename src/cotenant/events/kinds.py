"""What can happen, declared once: `cotenant events`, docs/events.md and whoever reads events from Python go by it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

SCHEMA = 1  # of an event in JSON: a key or kind that goes, or gets another meaning, makes it another


class Kind(Enum):
    """With what it means."""

    joined = "joined", "A process became a tenant: it used a GPU for the first time."
    left = "left", "A tenant is no more: its process has ended, or has given its slot back."
    class_changed = "class-changed", "A tenant has another class, as `cotenant ctl --class` asked."
    evicted = "evicted", "A tenant's memory went to the host."
    restored = "restored", "A tenant's memory is back on the GPU."
    paused = "paused", "A tenant was paused by hand: its memory went to the host."
    resumed = "resumed", "A paused tenant runs on."
    promise_broken = (
        "promise-broken",
        "A tenant was slowed down more, or got less of a GPU, than was promised.",
    )
    promise_kept = "promise-kept", "A promise that was broken is kept again."
    eviction_refused = "eviction-refused", "A tenant's memory should have gone to the host and did not."
    allocation_refused = "allocation-refused", "A memory limit did not allow an allocation."
    escaped = "escaped", "Work reached the GPU without the gate that it should have passed."
    mps_failed = "mps-failed", "The MPS server that a tenant's contexts live in has failed, and they with it."
    mps_replaced = (
        "mps-replaced",
        "Something is wrong with an MPS daemon of Cotenant's: new jobs get another.",
    )
    daemon_started = "daemon-started", "A daemon looks after the segment."
    daemon_ended = "daemon-ended", "The daemon has ended; the rules go on under the last knobs."
    policy_changed = "policy-changed", "Another policy decides."
    policy_failed = "policy-failed", "The policy failed, and `strict` goes on in its place."
    settings_wrong = "settings-wrong", "A file of settings is wrong; the last good settings hold."

    def __init__(self, word: str, meaning: str) -> None:
        self.word = word
        self.meaning = meaning

    @staticmethod
    def of(word: str) -> Kind:
        """Raises ValueError."""
        for kind in Kind:
            if kind.word == word:
                return kind
        raise ValueError(word)


@dataclass(frozen=True)
class Event:
    at: float  # seconds since 1970
    kind: Kind
    cause: str  # why, in words
    job: str = ""  # of the tenant, as the next four; empty: it is the daemon's
    pid: int = 0  # or the daemon's
    started: int = 0
    run_id: str = ""
    uid: int = -1
    gpu: int | None = None  # None: of no GPU in particular

    @property
    def subject(self) -> str:
        return f"{self.job or 'daemon'} ({self.pid})"

    def record(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"schema": SCHEMA} | vars(self) | {"kind": self.kind.word}

    @staticmethod
    def of(found: Any) -> Event:
        """Raises ValueError, TypeError or KeyError for what is none. A later version may have more keys."""
        numbers = [found[name] for name in ("at", "pid", "started", "uid")]
        texts = [found[name] for name in ("kind", "cause", "job", "run_id")]
        gpu = found["gpu"]
        if not all(type(one) in (int, float) for one in numbers) or not all(
            isinstance(one, str) for one in texts
        ):
            raise TypeError(found)
        if not all(abs(one) < 2**64 for one in numbers):  # nor is Infinity, which JSON may hold
            raise ValueError(found)
        if not 0 <= numbers[0] < 2**40 or (gpu is not None and type(gpu) is not int):
            raise ValueError(found)
        at, pid, started, uid = numbers
        kind, cause, job, run_id = texts
        return Event(float(at), Kind.of(kind), cause, job, int(pid), int(started), run_id, int(uid), gpu)


def page() -> str:
    """The table of docs/events.md."""
    lines = ["| kind | meaning |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| `{kind.word}` | {kind.meaning} |" for kind in Kind)])
