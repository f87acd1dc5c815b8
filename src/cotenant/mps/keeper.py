"""The keeper of the user's own MPS daemons: a small process, which `cotenant run` starts with the first job that needs
MPS. It watches the daemons, puts another in a daemon's place for new jobs when it fails, and stops each daemon when the
last of its jobs has gone.

    trouble                              what the keeper does
    a server ends, or a client fails     new jobs get a new daemon; those of the old one are told by their interposer
    the control daemon ends, or hangs    the same
    no job for COTENANT_MPS_LINGER       stops the daemon, and after the last one ends itself
    somebody removes the folder          the same, with the last job

If the keeper itself is killed, the jobs run on; the next `run` starts another, which goes on with what it finds.

    python -m cotenant.mps.keeper FOLDER PROGRAM
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import sys
import time
from pathlib import Path

from cotenant.mps.control import NoMps, is_of_mps
from cotenant.mps.place import Generation, Place, started

LINGER_SECONDS = 10.0
LOOK_SECONDS = 0.5
LOCK_SECONDS = 1.0
ASK_SECONDS = 2.0  # how often a daemon with jobs is asked, until it has a server
ASK_SECONDS_CALM = 10.0
LINGER = "COTENANT_MPS_LINGER"


class Kept:
    """A daemon that the keeper watches."""

    def __init__(self, generation: Generation, program: str) -> None:
        self.generation = generation
        self.control = generation.control(program)
        self.daemon: int | None = None  # known once it is current: its folder is made before it runs
        self.servers: dict[int, int | None] = {}  # when each began
        self.asked_at = 0.0
        self.wanted_at = time.monotonic()  # when it last had a job

    def is_wanted(self, linger_seconds: float) -> bool:
        now = time.monotonic()
        if self.generation.users():
            self.wanted_at = now
        return now - self.wanted_at < linger_seconds

    def look(self) -> str:
        """What is wrong with it; empty: nothing."""
        # Its servers first: they may end because the daemon has.
        for server, began in self.servers.items():
            if started(server) != began:
                return f"its server {server} has ended"
        self.daemon = self.daemon or self.control.pid
        if self.daemon is None or not is_of_mps(self.daemon):
            return "its control daemon has ended"
        if failed := first_line(self.generation.faults):
            pid, _, error = failed.partition(" ")
            return f"a client ({pid}) has failed with CUDA error {error}"
        pause = ASK_SECONDS_CALM if self.servers else ASK_SECONDS
        if self.generation.members() and time.monotonic() - self.asked_at > pause:
            self.asked_at = time.monotonic()
            try:
                self.servers |= {
                    pid: started(pid) for pid in self.control.servers() if pid not in self.servers
                }
            except NoMps as reason:
                return str(reason)
        return ""

    @property
    def processes(self) -> tuple[int, ...]:
        """As far as they are known, also when the daemon's files are gone."""
        return (*([self.daemon] if self.daemon else []), *self.servers)

    def end(self) -> None:
        self.control.stop(self.processes)
        shutil.rmtree(self.generation.folder, ignore_errors=True)


class Keeper:
    def __init__(self, place: Place, program: str, linger_seconds: float) -> None:
        self.place = place
        self.program = program
        self.linger_seconds = linger_seconds
        self.kept: dict[Generation, Kept] = {}
        self.needed_at = time.monotonic()

    def keep(self, lock: int) -> None:
        """Until there is no daemon any more; then the lock is released."""
        while True:
            for generation in self.place.generations():
                self.kept.setdefault(generation, Kept(generation, self.program))
            for one in list(self.kept.values()):
                is_current = self.place.current == one.generation
                if is_current and (trouble := one.look()):
                    self.replace(one, trouble)
                elif not one.is_wanted(self.linger_seconds):
                    self.end(one)
            if self.kept:
                self.needed_at = time.monotonic()
            elif time.monotonic() - self.needed_at > self.linger_seconds and self.is_over(lock):
                return
            self.wait()

    def wait(self) -> None:
        """A server's end is seen at once, all else within LOOK_SECONDS."""
        watched = select.poll()
        with contextlib.ExitStack() as stack:
            for one in self.kept.values():
                if one.generation.trouble:
                    continue
                for pid in one.processes:
                    with contextlib.suppress(OSError, AttributeError):
                        file = os.pidfd_open(pid)
                        stack.callback(os.close, file)
                        watched.register(file, select.POLLIN)
            watched.poll(LOOK_SECONDS * 1000)

    def replace(self, one: Kept, trouble: str) -> None:
        """It stays for as long as it has jobs, but gets no new ones."""
        with self.place.door():
            (one.generation.folder / "trouble").write_text(trouble + "\n")
            self.place.set_current(None)
            # Where that fails the next `run` says why.
            if one.generation.users():
                with contextlib.suppress(NoMps):
                    self.place.begin(self.program, os.environ)

    def end(self, one: Kept) -> None:
        with self.place.door():
            if one.generation.users():
                return
            if self.place.current == one.generation:
                self.place.set_current(None)
            one.end()
            del self.kept[one.generation]

    def has_lost_its_folder(self) -> bool:
        """Nobody can join any more: what was started is ended with its last job."""
        if self.place.folder.is_dir():
            return False
        for generation, one in list(self.kept.items()):
            if not generation.users():
                one.control.kill(one.processes)
                del self.kept[generation]
        return not self.kept

    def is_over(self, lock: int) -> bool:
        """A `run` that comes through the door afterwards starts another keeper."""
        with self.place.door():
            if self.place.generations():
                return False
            os.close(lock)
            return True


def first_line(file: Path) -> str:
    try:
        with file.open(errors="replace") as lines:
            return lines.readline(200).strip()
    except OSError:
        return ""


def main(folder: str, program: str) -> None:
    place = Place(Path(folder))
    # Who only looks whether there is a keeper holds the lock for an instant.
    deadline = time.monotonic() + LOCK_SECONDS
    while (lock := place.become_keeper()) is None:
        if time.monotonic() > deadline:
            return
        time.sleep(0.05)
    try:
        linger = float(os.environ.get(LINGER) or LINGER_SECONDS)
    except ValueError:
        linger = LINGER_SECONDS
    keeper = Keeper(place, program, linger)
    while True:
        # Somebody may stand in the door for long: the daemons need a keeper all the same.
        with contextlib.suppress(NoMps, OSError):
            keeper.keep(lock)
            return
        if keeper.has_lost_its_folder():
            return
        time.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    main(*sys.argv[1:])
