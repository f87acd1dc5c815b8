"""The drills: what is done to a running production job and the opportunistic job beside it, one thing at a time.

A drill does its damage and says what it did. What became of the two is found out by whoever runs it (staging.py).
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

from staging import Stage

from cotenant import segment
from cotenant.daemon import lock, report
from cotenant.errors import Problem

STOPPED_SECONDS = 1.0
OVERWRITES = 20
EXITS = 5
WAIT_SECONDS = 20.0


def wait_until(is_so: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise Problem(f"{what} did not happen within {WAIT_SECONDS:.0f} s")
        time.sleep(0.002)


def production_killed(stage: Stage) -> str:
    stage.kill(stage.production)
    return "SIGKILL amid its requests"


def opportunistic_killed(stage: Stage) -> str:
    stage.kill(stage.opportunistic)
    return "SIGKILL amid its kernels"


def production_stopped(stage: Stage) -> str:
    os.kill(stage.production.pid, signal.SIGSTOP)
    time.sleep(STOPPED_SECONDS)
    os.kill(stage.production.pid, signal.SIGCONT)
    return f"SIGSTOP, SIGCONT {STOPPED_SECONDS:g} s later"


def daemon_killed(stage: Stage) -> str:
    file = report.file_for(stage.segment)
    wait_until(file.exists, "a daemon's report")
    shown = report.read(stage.segment)
    if shown is None:
        raise Problem("the daemon's report cannot be read")
    os.kill(shown.pid, signal.SIGKILL)
    wait_until(lambda: not lock.is_held(stage.segment), "the daemon's end")
    stage.add_job("standard")
    wait_until(lambda: lock.is_held(stage.segment), "another daemon's start")
    return "SIGKILL; the next `cotenant run` started another"


def segment_removed(stage: Stage) -> str:
    stage.segment.unlink()
    return "unlink"


def overwrite(path: Path, first: int, last: int) -> None:
    chance = random.Random(1)
    with path.open("r+b") as file:
        for _ in range(OVERWRITES):
            file.seek(first)
            file.write(chance.randbytes(last - first))
            file.flush()
            time.sleep(0.02)


def slots_overwritten(stage: Stage) -> str:
    overwrite(stage.segment, segment.PLACE, stage.segment.stat().st_size)
    return f"all slots with random bytes, {OVERWRITES} times"


def all_overwritten(stage: Stage) -> str:
    overwrite(stage.segment, 0, stage.segment.stat().st_size)
    return f"header and slots with random bytes, {OVERWRITES} times"


def exit_while_launching(stage: Stage) -> str:
    endings = [stage.run_to_its_end("exiting.py", tenant_class) for tenant_class in EXIT_CLASSES * EXITS]
    bad = [status for status in endings if status != 0]
    if bad:
        stage.complain(f"{len(bad)} of {len(endings)} exits had status {bad[0]}")
    return f"{len(endings)} processes left main while two threads launched"


EXIT_CLASSES = ("production", "opportunistic")


def killed_amid_eviction(stage: Stage) -> str:
    victim = stage.opportunistic
    segment.ask(stage.segment, victim.pid, {"pause": 1})

    def is_leaving() -> bool:
        tenants = segment.read(stage.segment).tenants
        return any(one.pid == victim.pid and one.where == segment.Where.evicting for one in tenants)

    wait_until(is_leaving, "an eviction")
    stage.kill(victim)
    wait_until(
        lambda: all(one.pid != victim.pid for one in segment.read(stage.segment).tenants),
        "the slot's reaping",
    )
    return "SIGKILL while its memory went to the host"


DRILLS: dict[str, Callable[[Stage], str]] = {
    "production killed": production_killed,
    "production stopped": production_stopped,
    "opportunistic killed": opportunistic_killed,
    "daemon killed": daemon_killed,
    "segment removed": segment_removed,
    "slots overwritten": slots_overwritten,
    "segment overwritten": all_overwritten,
    "exit while launching": exit_while_launching,
    "killed amid an eviction": killed_amid_eviction,
}
