"""A job of the soak (job.c) under `cotenant run`: what it was told and has not answered yet, and how it is held."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from cotenant.errors import Problem

ANSWER_SECONDS = 120.0  # on a loaded machine; a job that waits for a gate for ever takes longer


class Stuck(Problem):
    """A job that has nobody to wait for did not answer."""


class Job:
    def __init__(
        self, number: int, tenant_class: str, program: Path, env: dict[str, str], folder: Path
    ) -> None:
        self.number, self.tenant_class = number, tenant_class
        self.errors = folder / f"job-{number}.stderr"
        command = [sys.executable, "-m", "cotenant", "run", "--require", "--class", tenant_class]
        command += ["--oversubscribe", "--", str(program)]
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, bufsize=0
            )
        self.unanswered: list[str] = []
        self.said = b""
        self.is_paused = self.is_stopped = self.is_limited = False
        self.is_tenant = False  # it has used the GPU

    @property
    def pid(self) -> int:
        """Also under `cotenant run`, which becomes the job."""
        return self.process.pid

    @property
    def name(self) -> str:
        return f"job {self.number} ({self.tenant_class}, PID {self.pid})"

    def tell(self, line: str) -> None:
        assert self.process.stdin
        self.unanswered.append(line)
        self.process.stdin.write(f"{line}\n".encode())

    def ask(self, line: str) -> str:
        self.tell(line)
        return self.hear()

    def hear(self) -> str:
        """Waits until it has answered all that it was told; gives what stands before the last `done`."""
        assert self.process.stdout
        last, deadline = "", time.monotonic() + ANSWER_SECONDS
        while self.unanswered:
            line, found, rest = self.said.partition(b"\n")
            if not found:
                ready, _, _ = select.select(
                    [self.process.stdout], [], [], max(0, deadline - time.monotonic())
                )
                if not ready:
                    raise Stuck(f"{self.name} did not answer '{self.unanswered[0]}': {self.waits()}")
                more = os.read(self.process.stdout.fileno(), 4096)
                if not more:
                    status = self.process.wait()
                    raise Problem(
                        f"{self.name} ended at '{self.unanswered[0]}' ({status}): {self.complaint()}"
                    )
                self.said += more
                continue
            self.said = rest
            told, answer = self.unanswered.pop(0), line.decode()
            if not answer.endswith("done"):
                raise Problem(f"{self.name} answered '{told}' with '{answer}': {self.complaint()}")
            last = answer.removesuffix("done").strip()
        return last

    def complaint(self) -> str:
        return self.errors.read_text(errors="replace").strip()[-500:] or "it said nothing on stderr"

    def waits(self) -> str:
        """Where its threads are, for the report of one that hangs."""
        threads = []
        for task in sorted(Path(f"/proc/{self.pid}/task").glob("*")):
            try:
                threads.append(f"{(task / 'comm').read_text().strip()}: {(task / 'wchan').read_text()}")
            except OSError:
                continue
        return ", ".join(threads) + self.stacks()

    def stacks(self) -> str:
        if not (debugger := shutil.which("gdb")):
            return ""
        ask = [debugger, "-p", str(self.pid), "-batch", "-ex", "thread apply all backtrace"]
        return "\n" + subprocess.run(ask, capture_output=True, text=True, check=False).stdout

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def stop(self) -> None:
        self.is_stopped = True
        self.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.is_stopped = False
        self.signal(signal.SIGCONT)

    def ended(self) -> int:
        """Waits for its end."""
        try:
            status = self.process.wait(ANSWER_SECONDS)
        except subprocess.TimeoutExpired:
            raise Stuck(f"{self.name} does not end: {self.waits()}") from None
        self.close()
        return status

    def close(self) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            if stream:
                stream.close()

    def kill(self) -> None:
        self.process.kill()
        self.ended()
