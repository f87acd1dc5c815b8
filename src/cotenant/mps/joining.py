"""How `cotenant run` routes a job through MPS: which daemon, and what the job's environment says."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from cotenant.mps.control import DEFAULT_PIPE, Control, NoMps
from cotenant.mps.place import Generation, Place, find_folder

FAULTS = "COTENANT_MPS_FAULTS"
OWNERS = (0, os.geteuid())  # of a daemon that serves this user
NO_DAEMON = "/dev/null"  # as a pipe directory: the driver makes contexts of the process's own
OF_A_CLIENT = (
    "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_MPS_LOG_DIRECTORY",
    "CUDA_MPS_CLIENT_PRIORITY",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
    FAULTS,
)


def place_for(environment: Mapping[str, str]) -> Place:
    return Place(find_folder(environment))


def drop_own(environment: dict[str, str]) -> None:
    """What an outer run has set."""
    if place_for(environment).owns(environment.get("CUDA_MPS_PIPE_DIRECTORY", "")):
        for name in OF_A_CLIENT:
            environment.pop(name, None)


def isolate(environment: dict[str, str]) -> None:
    """Its contexts are its own, also where an MPS daemon runs."""
    for name in OF_A_CLIENT:
        environment.pop(name, None)
    environment["CUDA_MPS_PIPE_DIRECTORY"] = NO_DAEMON


def find_running(environment: Mapping[str, str], program: str) -> Control | None:
    """An MPS daemon that is not ours and that the driver would use by itself: it is used, and neither replaced nor
    stopped. One of another user's serves that user alone, unless it is root's."""
    named = environment.get("CUDA_MPS_PIPE_DIRECTORY", "")
    pipe = Path(named) if named else DEFAULT_PIPE
    if place_for(environment).owns(named) or not is_for_us(pipe):
        return None
    found = Control(program, pipe)
    return found if found.is_answering() else None


def is_for_us(pipe: Path) -> bool:
    try:
        return (pipe / "control").stat().st_uid in OWNERS
    except OSError:
        return False


def join(environment: Mapping[str, str], program: str) -> Generation:
    """The user's own daemon, started where none runs; this process counts as its client until it ends. Raises NoMps."""
    from cotenant.launch import detached

    place = place_for(environment)
    place.make()
    kept = detached.environment_for(environment, ("COTENANT_MPS_", "COTENANT_NATIVE"))
    try:
        with place.door():
            # First, so that the daemon is stopped also when this process is killed before it has joined.
            if not place.has_keeper():
                keeper = [sys.executable, "-P", "-m", "cotenant.mps.keeper", str(place.folder), program]
                detached.spawn(keeper, kept)
            generation = place.current
            if generation is None or generation.control(program).pid is None:
                generation = place.begin(program, kept)
            generation.enter(os.getpid())
            return generation
    except OSError as error:
        raise NoMps(f"cannot use {place.folder}: {error}") from None
