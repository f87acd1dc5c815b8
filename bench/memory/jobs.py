"""The benchmark's processes: started in parallel, heard line by line, ended whatever happens."""

from __future__ import annotations

import argparse
import queue
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cotenant.demo.rounds import private_folder, worker_environment
from cotenant.errors import Problem, narrate

HERE = Path(__file__).resolve().parent


class Job:
    def __init__(self, title: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.title = title
        self.log = log
        self.lines: list[str] = []
        self._new: queue.Queue[str | None] = queue.Queue()
        try:
            with log.open("w") as errors:
                self.process = subprocess.Popen(
                    command,
                    env=dict(environment),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                )
        except OSError as error:
            raise Problem(
                f"cannot start {command[0]}: {error.strerror}", "see --python and --cotenant"
            ) from None
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def pid(self) -> int:
        """`cotenant run` becomes the program: this is the tenant's."""
        return self.process.pid

    def _listen(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.append(line.strip())
            self._new.put(line.strip())
        self._new.put(None)

    def wait_for(self, word: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while True:
            with suppress(queue.Empty):
                line = self._new.get(timeout=max(0.001, deadline - time.monotonic()))
                if line is None:
                    raise self.problem("has ended")
                if line.startswith(word):
                    return
            if time.monotonic() > deadline:
                raise self.problem(f"did not say '{word}' within {seconds:.0f} s")

    def wait_for_more_losses(self, count: int, seconds: float) -> None:
        wanted = len(self.losses()) + count
        deadline = time.monotonic() + seconds
        while len(self.losses()) < wanted:
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise self.problem("does not go on")
            time.sleep(0.005)

    def say(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def finish(self, seconds: float) -> list[str]:
        """Ends its stdin and waits; all that it has said."""
        assert self.process.stdin
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise self.problem(f"did not end within {seconds:.0f} s") from None
        while self._new.get() is not None:
            pass
        if status != 0:
            raise self.problem(f"ended with status {status}")
        return self.lines

    def losses(self) -> list[str]:
        return [line.split()[2] for line in list(self.lines) if line.startswith("loss ")]

    def problem(self, what: str) -> Problem:
        said = self.log.read_text().strip().splitlines()
        return Problem(f"the {self.title} {what}", "; ".join(said[-3:]))

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@dataclass
class Setting:
    python: Sequence[str]
    cotenant: Sequence[str]
    folder: Path
    environment: Mapping[str, str]
    toy: bool
    started: int = 0

    def segment(self) -> Path:
        return Path(self.environment["COTENANT_SEGMENT"])

    def start(
        self,
        program: str,
        tenant_class: str | None,
        *options: str | int,
        promise: float | None = None,
        with_helper: bool = True,
    ) -> Job:
        """`tenant_class` None: without Cotenant. `with_helper`: whether the one for PyTorch comes by itself."""
        script = [str(HERE / "toy.py"), program] if self.toy else [str(HERE / f"{program}.py")]
        command = [*self.python, *script, *map(str, options)]
        if tenant_class:
            stated = ["--slowdown", f"{promise:.0%}"] if promise else []
            run = [*self.cotenant, "run", "--require", "--class", tenant_class, *stated]
            command = [*run, "--", *command]
        self.started += 1
        log = self.folder / f"{program}-{self.started}.log"
        environment = {**self.environment, "COTENANT_TORCH": str(int(with_helper))}
        return Job(f"{program} ({tenant_class or 'alone'})", command, environment, log)


@contextmanager
def prepared(
    python: str, cotenant: str, environment: Mapping[str, str], toy: bool = False
) -> Iterator[Setting]:
    """In a folder of their own, with what they find in their environment beside the caller's."""
    with private_folder() as folder:
        everything = worker_environment(folder) | dict(environment)
        yield Setting(shlex.split(python), shlex.split(cotenant), folder, everything, toy)


def parser_with_commands(about: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=shlex.quote(sys.executable), help="the interpreter of the jobs")
    parser.add_argument("--cotenant", default=shlex.join([sys.executable, "-m", "cotenant"]))
    return parser


def say(problem: Problem) -> None:
    narrate(f"error: {problem.message}" + (f"\nhint: {problem.hint}" if problem.hint else ""))


def measure_prepared(
    measure: Callable[[Setting, argparse.Namespace], None],
    options: argparse.Namespace,
    environment: Mapping[str, str],
) -> int:
    """The exit status."""
    try:
        with prepared(options.python, options.cotenant, environment) as setting:
            measure(setting, options)
    except Problem as problem:
        say(problem)
        return problem.status
    return 0


@contextmanager
def parallel(jobs: Sequence[Job]) -> Iterator[None]:
    try:
        yield
    finally:
        for job in jobs:
            job.end()
