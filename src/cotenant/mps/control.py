"""NVIDIA's MPS control program: finding it, and starting, asking and stopping a control daemon with it.

A daemon is known by its pipe directory. Nothing here waits without end: a program that hangs is killed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PROGRAM = "nvidia-cuda-mps-control"
FOLDERS = (
    "/usr/local/nvidia/bin",
    "/usr/bin",
)  # the first is where container runtimes mount the driver's programs
DEFAULT_PIPE = Path("/tmp/nvidia-mps")
START_SECONDS = 20.0
ANSWER_SECONDS = 5.0
END_SECONDS = 5.0
OF_MPS = "nvidia-cuda-mps"  # how the names of MPS's processes begin


class NoMps(Exception):
    """Why MPS cannot be used; the text says it."""


def find(environment: Mapping[str, str], driver_file: Path | None = None) -> str | None:
    """The control program: on the PATH, beside the driver's library, or where containers and distributions have it."""
    beside = [str(driver_file.parent), str(driver_file.parent.parent / "bin")] if driver_file else []
    places = [environment.get("PATH", os.defpath), *beside, *FOLDERS]
    return shutil.which(PROGRAM, path=os.pathsep.join(places))


def without_mps(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith("CUDA_MPS_")}


@dataclass(frozen=True)
class Control:
    """A control daemon, running or not."""

    program: str
    pipe: Path
    log: Path | None = None

    def environment(self, of: Mapping[str, str]) -> dict[str, str]:
        """Of its clients, and of the control program itself."""
        told = without_mps(of) | {"CUDA_MPS_PIPE_DIRECTORY": str(self.pipe)}
        return told | {"CUDA_MPS_LOG_DIRECTORY": str(self.log)} if self.log else told

    def start(self, environment: Mapping[str, str]) -> None:
        """Raises NoMps. The daemon serves all GPUs: each client chooses its own."""
        import subprocess  # only jobs that overlap need it
        import tempfile

        env = self.environment(environment)
        for name in ("CUDA_VISIBLE_DEVICES", "LD_PRELOAD"):
            env.pop(name, None)
        # To a file: the daemon would keep a pipe open, and reading it would wait for the daemon.
        with tempfile.TemporaryFile() as output:
            try:
                done = subprocess.run(
                    [self.program, "-d"],
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    timeout=START_SECONDS,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                self.kill()
                raise NoMps(f"{PROGRAM} -d did not come back within {START_SECONDS:.0f} s") from None
            except OSError as error:
                raise NoMps(f"{PROGRAM} -d failed: {error}") from None
            if done.returncode != 0:
                output.seek(0)
                said = output.read().decode(errors="replace").strip() or f"exit status {done.returncode}"
                raise NoMps(f"{PROGRAM} -d failed: {said.splitlines()[-1]}")

    def ask(self, command: str, seconds: float = ANSWER_SECONDS) -> str:
        """Its answer. Raises NoMps where there is none."""
        import subprocess

        try:
            done = subprocess.run(
                [self.program],
                env=self.environment(os.environ),
                input=command + "\n",
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise NoMps(f"the MPS daemon in {self.pipe} did not answer within {seconds:.0f} s") from None
        except OSError as error:
            raise NoMps(f"{self.program} failed: {error}") from None
        if done.returncode != 0:
            said = (
                done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}"
            ).splitlines()[-1]
            raise NoMps(f"the MPS daemon in {self.pipe} does not answer: {said}")
        return done.stdout

    def servers(self) -> list[int]:
        """Raises NoMps."""
        return [int(word) for word in self.ask("get_server_list").split() if word.isdigit()]

    def is_answering(self) -> bool:
        if not (self.pipe / "control").exists():
            return False
        try:
            self.ask("get_server_list")
        except NoMps:
            return False
        return True

    @property
    def pid(self) -> int | None:
        """Of the control daemon, if it lives in this PID namespace."""
        with contextlib.suppress(OSError, ValueError):
            pid = int((self.pipe / f"{PROGRAM}.pid").read_text())
            if is_of_mps(pid):
                return pid
        return None

    def stop(self, servers: tuple[int, ...] = ()) -> None:
        """`quit`; what has not ended after a while is killed."""
        pids = [pid for pid in (self.pid, *servers) if pid]
        with contextlib.suppress(NoMps):
            self.ask("quit", END_SECONDS)
        if not all_gone(pids, END_SECONDS):
            self.kill(servers)

    def kill(self, servers: tuple[int, ...] = ()) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            pids = [pid for pid in (self.pid, *servers) if pid and is_of_mps(pid)]
            for pid in pids:
                with contextlib.suppress(OSError):
                    os.kill(pid, number)
            if all_gone(pids, 1.0):
                return


def is_of_mps(pid: int) -> bool:
    """A process of MPS that has not ended; its number may have become another's."""
    try:
        if not Path(f"/proc/{pid}/comm").read_text(errors="replace").startswith(OF_MPS):
            return False
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def all_gone(pids: list[int], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while any(map(is_of_mps, pids)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
