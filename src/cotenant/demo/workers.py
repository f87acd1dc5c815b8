"""The demo's side of its worker processes: start, order, hear, end."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from cotenant.demo.orders import Answer, Order
from cotenant.errors import Problem

# What a worker may take beyond its window: imports and a context at the start, a backlog at the end.
PATIENCE_SECONDS = 45.0
_TAIL_LINES = 8


class Worker:
    """One workload process. Anything it does but answer is a Problem that quotes the end of its stderr."""

    def __init__(self, title: str, command: Sequence[str], env: Mapping[str, str], folder: Path) -> None:
        self.title = title
        self._stderr: Path = folder / f"{title.replace(' ', '-')}.stderr"
        with self._stderr.open("wb") as stderr:
            # A group of its own: Ctrl-C reaches the demo alone, which then ends its workers.
            self._process = subprocess.Popen(
                command,
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                process_group=0,
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin: IO[str] = self._process.stdin
        self._stdout: IO[str] = self._process.stdout
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def pid(self) -> int:
        """Also under `cotenant run`, which becomes the workload."""
        return self._process.pid

    def _listen(self) -> None:
        for line in self._stdout:
            self._lines.put(line)
        self._lines.put("")

    def order(self, order: Order) -> None:
        with contextlib.suppress(BrokenPipeError):  # answer() says how it ended
            self._stdin.write(order.line())
            self._stdin.flush()

    def answer(self, within_seconds: float = 0.0) -> Answer:
        try:
            line = self._lines.get(timeout=within_seconds + PATIENCE_SECONDS)
        except queue.Empty:
            raise self._problem("did not answer in time") from None
        if not line:
            raise self._problem(f"ended early ({_ending(self._process.wait())})")
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise self._problem(f"said something that is no answer: {line.strip()[:120]}")
        return answer

    def _problem(self, what: str) -> Problem:
        lines = self._stderr.read_text(errors="replace").strip().splitlines()[-_TAIL_LINES:]
        said = "".join(f"\n  {line}" for line in lines) if lines else " and said nothing on stderr"
        return Problem(f"the {self.title} job {what}{':' if lines else ''}{said}")

    def ask_to_end(self) -> None:
        with contextlib.suppress(OSError):
            self._stdin.close()

    def end(self, within_seconds: float = 3.0) -> int:
        """Its exit status; negative: the signal that ended it."""
        self.ask_to_end()
        try:
            return self._process.wait(within_seconds)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            return self._process.wait()


def _ending(status: int) -> str:
    return signal.Signals(-status).name if status < 0 else f"exit status {status}"


def worker_command(module: str, class_: str | None, softgpu_device: str | None, *options: str) -> list[str]:
    """How a user would start it: plainly or under `cotenant run`, on the software GPU if one is named."""
    cotenant = [sys.executable, "-m", "cotenant"]
    command: list[str] = []
    if softgpu_device is not None:
        command += [*cotenant, "softgpu", "--device", softgpu_device, "--sharing", "timeslice", "--"]
    if class_ is not None:
        command += [*cotenant, "run", "--require", "--class", class_, "--"]
    return [*command, sys.executable, "-m", module, *options]
