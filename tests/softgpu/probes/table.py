"""The table that probes enter themselves into, and the names of the driver's answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SUCCESS = 0
INVALID_VALUE = 1
OUT_OF_MEMORY = 2
INVALID_DEVICE = 101
INVALID_IMAGE = 200
INVALID_CONTEXT = 201
INVALID_HANDLE = 400
ILLEGAL_STATE = 401
NOT_FOUND = 500
NOT_READY = 600
CONTEXT_IS_DESTROYED = 709
ALREADY_REGISTERED = 712
NOT_REGISTERED = 713
COOPERATIVE_LAUNCH_TOO_LARGE = 720
NOT_SUPPORTED = 801
UNSUPPORTED = 900  # this and the next: CUDA_ERROR_STREAM_CAPTURE_*
INVALIDATED = 901
MERGE = 902
UNMATCHED = 903
UNJOINED = 904
ISOLATION = 905
IMPLICIT = 906
CAPTURED_EVENT = 907
WRONG_THREAD = 908
UPDATE_FAILURE = 910

Run = Callable[[Any], int]


@dataclass(frozen=True)
class Probe:
    name: str
    run: Run
    expected: int
    apart: bool  # it hands a driver what is no longer there: it runs in a process that may be lost
    # NVIDIA's driver takes the process with it, or never comes back (and is not asked again): what is expected is then
    # the software GPU's answer.
    crashes: bool
    hangs: bool


PROBES: dict[str, Probe] = {}


def probe(
    expected: int, apart: bool = False, crashes: bool = False, hangs: bool = False
) -> Callable[[Run], Run]:
    """Enters a function, which makes what it needs, gives it back, and returns one answer of the driver."""

    def enter_this(run: Run) -> Run:
        enter(run.__name__, expected, run, apart, crashes, hangs)
        return run

    return enter_this


def enter(
    name: str, expected: int, run: Run, apart: bool = False, crashes: bool = False, hangs: bool = False
) -> None:
    assert name not in PROBES, name
    PROBES[name] = Probe(name, run, expected, apart or crashes or hangs, crashes, hangs)
