"""The user's own MPS daemons on disk: a private folder, in it a generation for each daemon.

    door              locked for a moment by whoever joins, and by the keeper while it starts or stops a daemon
    keeper.lock       held by the keeper (keeper.py) for as long as it lives
    current           the name of the generation that new jobs join
    NUMBER/pipe, log  the daemon's folders
    NUMBER/faults     a line for each client that has failed: written by clients (native/tenant/mps.cpp)
    NUMBER/trouble    why no new job joins it any more: written by the keeper
    NUMBER/jobs/PID.STARTED   a process that `cotenant run` has routed there; `run` becomes the program, so the process
                      is the same

A job joins behind the door, and the daemon is stopped behind the door: so no job joins a daemon that is being stopped.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cotenant.mps.control import Control, NoMps

FOLDER = "COTENANT_MPS_DIR"
LONGEST_PIPE = 80  # a socket's address holds 107 characters, and MPS puts its sockets into the folder
DOOR_SECONDS = 40.0


def find_folder(environment: Mapping[str, str]) -> Path:
    """Where it is or would be: in the user's runtime folder, unless its path is too long."""
    if given := environment.get(FOLDER):
        return Path(given).absolute()
    runtime = environment.get("XDG_RUNTIME_DIR", "")
    own = Path(runtime) / "cotenant-mps"
    if runtime.startswith("/") and os.access(runtime, os.W_OK) and is_short(own):
        return own
    return Path(f"/tmp/cotenant-mps-{os.getuid()}")


def is_short(folder: Path) -> bool:
    return len(os.fsencode(folder / "1000000" / "pipe")) <= LONGEST_PIPE


@dataclass(frozen=True)
class Generation:
    folder: Path

    @property
    def pipe(self) -> Path:
        return self.folder / "pipe"

    @property
    def faults(self) -> Path:
        return self.folder / "faults"

    @property
    def jobs(self) -> Path:
        return self.folder / "jobs"

    def control(self, program: str) -> Control:
        return Control(program, self.pipe, self.folder / "log")

    def make(self) -> None:
        for folder in (self.folder, self.pipe, self.folder / "log", self.jobs):
            folder.mkdir(mode=0o700)

    def enter(self, pid: int) -> None:
        (self.jobs / f"{pid}.{started(pid)}").touch(mode=0o600)

    def members(self) -> list[int]:
        """Of the processes that `run` has routed here, those that live; the others are forgotten."""
        live = []
        for entry in list(self.jobs.iterdir()) if self.jobs.is_dir() else ():
            pid, _, began = entry.name.partition(".")
            if pid.isdigit() and began == str(started(int(pid))):
                live.append(int(pid))
            else:
                entry.unlink(missing_ok=True)
        return live

    def users(self) -> list[int]:
        """Members, else whoever else was started for this daemon: children of a `run` that has ended."""
        return self.members() or list(processes_with(f"CUDA_MPS_PIPE_DIRECTORY={self.pipe}"))

    @property
    def trouble(self) -> str:
        """Empty: none."""
        try:
            return (self.folder / "trouble").read_text(errors="replace").strip()
        except OSError:
            return ""


@dataclass(frozen=True)
class Place:
    folder: Path

    def make(self) -> None:
        """Raises NoMps where others could write there, or its path is too long for a socket."""
        if not is_short(self.folder):
            raise NoMps(f"the path {self.folder} is too long for MPS: set {FOLDER} to a shorter one")
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            about = self.folder.lstat()
        except OSError as error:
            raise NoMps(f"cannot make {self.folder}: {error.strerror}") from None
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o077:
            raise NoMps(
                f"{self.folder} is no folder of this user's alone: remove it, or set {FOLDER} to another"
            )

    @contextlib.contextmanager
    def door(self) -> Iterator[None]:
        """Raises NoMps where somebody stands in it for too long."""
        file = os.open(self.folder / "door", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            deadline = time.monotonic() + DOOR_SECONDS
            while not lock(file):
                if time.monotonic() > deadline:
                    raise NoMps(f"{self.folder}/door has been locked for {DOOR_SECONDS:.0f} s")
                time.sleep(0.02)
            yield
        finally:
            os.close(file)

    def become_keeper(self) -> int | None:
        """An open file that holds the lock; None: there is a keeper."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        file = os.open(self.folder / "keeper.lock", flags, 0o600)
        if lock(file):
            return file
        os.close(file)
        return None

    def has_keeper(self) -> bool:
        file = self.become_keeper()
        if file is not None:
            os.close(file)
        return file is None

    @property
    def current(self) -> Generation | None:
        """That new jobs join."""
        try:
            name = (self.folder / "current").read_text()
        except OSError:
            return None
        return Generation(self.folder / name) if name.isdigit() else None

    def set_current(self, generation: Generation | None) -> None:
        if generation is None:
            (self.folder / "current").unlink(missing_ok=True)
            return
        unfinished = self.folder / "current.new"
        unfinished.write_text(generation.folder.name)
        unfinished.replace(self.folder / "current")

    def generations(self) -> list[Generation]:
        return [Generation(one) for one in sorted(self.folder.iterdir()) if one.name.isdigit()]

    def generation(self, number: int) -> Generation:
        return Generation(self.folder / str(number))

    def begin(self, program: str, environment: Mapping[str, str]) -> Generation:
        """A new daemon for new jobs. Behind the door. Raises NoMps."""
        numbers = [int(one.folder.name) for one in self.generations()]
        made = self.generation(max(numbers, default=0) + 1)
        try:
            made.make()
            made.control(program).start(environment)
        except BaseException:
            shutil.rmtree(made.folder, ignore_errors=True)
            raise
        self.set_current(made)
        return made

    def owns(self, pipe: str) -> bool:
        """Whether a pipe directory is one of these."""
        return bool(pipe) and Path(pipe).parent.parent == self.folder


def lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def started(pid: int) -> int | None:
    """When a process began, in clock ticks since boot; None: there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def processes_with(setting: str) -> Iterator[int]:
    """Processes of a `cotenant run` that have this in their environment."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if os.fsencode(setting) in environment and any(
            one.startswith(b"COTENANT_RUN_ID=") for one in environment
        ):
            yield int(entry.name)
