"""Why a tenant's memory was not evicted when it should have been, and what to do about it."""

from __future__ import annotations

from enum import Enum

from cotenant.segment import wire


class Refusal(Enum):
    in_capture = (
        wire.Refusal.in_capture,
        "a graph was being captured",
        "try again when the capture has ended",
    )
    does_not_drain = (
        wire.Refusal.does_not_drain,
        "its work on the GPU did not end in time",
        "its work on the GPU may wait for its own CPU; try again later",
    )
    host_budget = (
        wire.Refusal.host_budget,
        "the host memory budget is used up",
        "cotenant ctl --host-memory SIZE raises the budget of all tenants",
    )
    host_memory = (
        wire.Refusal.host_memory,
        "the host memory could not be allocated",
        "free some of the machine's memory",
    )
    driver_failed = (
        wire.Refusal.driver_failed,
        "a driver call failed",
        "it runs on as before; `cotenant explain PID` says more",
    )
    unknown = (None, "its slot names no reason that is known", "`cotenant doctor` looks at the segment")

    def __init__(self, word: wire.Refusal | None, text: str, remedy: str) -> None:
        self.word = word
        self.text = text
        self.remedy = remedy

    @classmethod
    def of(cls, word: int) -> Refusal | None:
        """None: nothing was refused. A tenant writes its own slot as it likes."""
        if word == wire.Refusal.none_refused:
            return None
        return next((one for one in cls if one.word == word), cls.unknown)
