"""Recordings that go on in the background: a process each, which `cotenant timeline start` and `run --timeline` start.

Each has a file in a folder of the user's, and holds a lock on it as long as it goes on. The file says what is recorded
and where to; when the recording has ended, what there is to say about it. A second file, empty, says that the recording
holds the rings of all its jobs: what they note from then on is in the picture, even if they end at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import stat
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from cotenant.daemon import start as daemon_start
from cotenant.errors import Problem
from cotenant.launch import detached

STARTED_SECONDS = 60.0  # on a busy machine
WRITTEN_SECONDS = 60.0
LOOK_SECONDS = 0.02
RINGS = ".rings"  # of the second file's name


@dataclass(frozen=True)
class Recording:
    pid: int
    segment: str
    output: str
    runs: tuple[str, ...]  # ids, as `run_of` has them


def run_of(uid: int, run_id: str) -> str:
    return f"{uid}-{run_id}"


def folder() -> Path:
    """Made where it is missing. Raises Problem where it is not this user's own."""
    path = Path(f"/dev/shm/cotenant-{os.geteuid()}.timelines")
    with contextlib.suppress(FileExistsError):
        try:
            path.mkdir(0o700)
        except FileExistsError:
            raise
        except OSError as error:
            raise Problem(f"cannot create {path}: {error.strerror}", "check /dev/shm") from None
    about = path.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o077:
        raise Problem(f"{path} is not a folder of yours alone", "have it removed")
    return path


@contextlib.contextmanager
def registered(recording: Recording) -> Iterator[int]:
    """Its file, locked, until the block ends."""
    path = folder() / f"{recording.pid}.json"
    unfinished = path.with_suffix(".new")
    unfinished.unlink(missing_ok=True)
    file = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        say(file, asdict(recording))
        unfinished.rename(path)  # whoever finds it finds it locked
        yield file
    finally:
        for one in (path, unfinished, path.with_suffix(RINGS)):
            one.unlink(missing_ok=True)
        os.close(file)


def rings_file(pid: int) -> Path:
    return folder() / f"{pid}{RINGS}"


def say_it_holds_rings(recording: Recording) -> None:
    with contextlib.suppress(OSError):  # nobody is told, and the recording goes on
        rings_file(recording.pid).touch(0o600)


def wait_for_rings(pid: int, seconds: float) -> None:
    """Returns too if it has ended by then, or if a job has not answered within `seconds`."""
    file = rings_file(pid)
    deadline = time.monotonic() + seconds
    while not file.exists() and detached.is_running(pid) and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)


def say(file: int, told: object) -> None:
    text = json.dumps(told).encode()
    os.ftruncate(file, 0)
    os.pwrite(file, text, 0)


def going_on(segment: Path) -> list[tuple[Recording, int]]:
    """With an open file of each, which is the caller's to close. What a killed recording has left is removed."""
    found = []
    for path in sorted(folder().glob("*.json")):
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        recording = read(file)
        if not is_locked(file):
            for one in (path, path.with_suffix(RINGS)):
                one.unlink(missing_ok=True)
        elif recording and recording.segment == str(segment):
            found.append((recording, file))
            continue
        os.close(file)
    return found


def read(file: int) -> Recording | None:
    try:
        told = json.loads(os.pread(file, 1 << 20, 0))
        return Recording(int(told["pid"]), told["segment"], told["output"], tuple(told["runs"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def is_locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(file, fcntl.LOCK_UN)
    return False


def are_others(recording: Recording) -> bool:
    """Whether another recording of this segment goes on: its tenants must go on noting."""
    found = going_on(Path(recording.segment))
    for _, file in found:
        os.close(file)
    return any(one.pid != recording.pid for one, _ in found)


def start(segment: Path, output: Path, *options: str) -> int:
    """In the background; returns its PID. Raises OSError where there can be no new process."""
    command = [sys.executable, "-P", "-m", "cotenant", "timeline", "collect", "--segment", str(segment)]
    environment = daemon_start.environment_for_daemon(os.environ)
    return detached.spawn([*command, "-o", str(output), *options], environment)


def wait_for_start(pid: int, segment: Path, output: Path) -> None:
    """Raises Problem, and then nothing records."""
    deadline = time.monotonic() + STARTED_SECONDS
    while time.monotonic() < deadline and detached.is_running(pid):
        found = going_on(segment)
        for _, file in found:
            os.close(file)
        if any(one.output == str(output) for one, _ in found):
            return
        time.sleep(LOOK_SECONDS)
    if detached.is_running(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    raise Problem(
        "the recording did not start", "`cotenant timeline collect --help` runs it in the foreground"
    )


def stop(recording: Recording, file: int) -> str:
    """Waits until its picture is written; returns what it says. Raises Problem."""
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(recording.pid)
        try:
            if is_locked(file):  # so the number is still the recording's
                signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        finally:
            os.close(descriptor)
    deadline = time.monotonic() + WRITTEN_SECONDS
    while is_locked(file):
        if time.monotonic() > deadline:
            raise Problem(
                f"the recording {recording.pid} does not end",
                f"kill {recording.pid} ends it without a picture",
            )
        time.sleep(LOOK_SECONDS)
    try:
        said = json.loads(os.pread(file, 1 << 20, 0))
    except ValueError:
        said = None
    if not isinstance(said, dict) or "said" not in said:
        raise Problem(f"the recording into {recording.output} was killed")
    if said.get("error"):
        raise Problem(said["said"])
    return str(said["said"])
