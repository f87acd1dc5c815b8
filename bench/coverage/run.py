"""Runs real programs with and without the interposer and compares their results bit for bit.

Each program runs plainly, then once as a production and once as an opportunistic tenant: these two at the same time
on one segment, so that the second is really held back by the first. Programs are in programs/, one file each.

python bench/coverage/run.py                                   # all programs
python bench/coverage/run.py --only torch_eager --jobs 1       # one of them
python bench/coverage/run.py --markdown docs/coverage.md       # rewrites the table of that page
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import dataclasses
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import evidence
from comparison import CLASSES, Outcome, Row, as_json, as_markdown, sum_counts, verdict, with_table

from cotenant import output_files

HERE = Path(__file__).resolve().parent
# These take longest to start, so they go first.
SLOW_FIRST = ("torch_compile", "dataloader_spawn", "static_cudart", "jax_training")


@dataclasses.dataclass(frozen=True)
class Program:
    name: str
    title: str
    path: Path


def programs(folder: Path, only: Sequence[str]) -> list[Program]:
    found = {}
    for path in sorted(folder.glob("*.py")):
        title = ast.get_docstring(ast.parse(path.read_text())) or path.stem
        found[path.stem] = Program(path.stem, title.splitlines()[0], path)
    for name in only:
        if name not in found:
            raise SystemExit(f"error: no program '{name}'\nhint: there are {', '.join(found)}")
    chosen = [program for program in found.values() if not only or program.name in only]
    return sorted(chosen, key=lambda p: (p.name not in SLOW_FIRST, p.name))


class Runner:
    def __init__(
        self,
        python: str,
        cotenant: Sequence[str],
        folder: Path,
        segments: Path,
        limit: float,
        apart: bool,
    ) -> None:
        self._python = python
        self._cotenant = list(cotenant)
        self._folder = folder
        self._segments = segments
        self._limit = limit
        self._apart = apart
        self._printing = threading.Lock()
        self._begin = time.monotonic()

    def row(self, program: Program) -> Row:
        plain = self._run(program, "plain", None)
        self._say(program, "plain", plain, plain.skipped and f"skipped: {plain.skipped}")
        if plain.skipped or plain.problem:
            return Row(program.name, program.title, plain, None, {})
        with ThreadPoolExecutor(len(CLASSES)) as pool:
            started = {name: pool.submit(self._run, program, name, name) for name in CLASSES}
            shared = {name: future.result() for name, future in started.items()}
        again = None
        if any(verdict(plain, outcome).startswith("differs") for outcome in shared.values()):
            again = self._run(program, "plain again", None)
        row = Row(program.name, program.title, plain, again, shared)
        for name, outcome in shared.items():
            self._say(program, name, outcome, row.verdicts[name])
        return row

    def _run(self, program: Program, run: str, class_: str | None) -> Outcome:
        place = self._folder / f"{program.name}-{run.replace(' ', '-')}"
        place.mkdir()
        report = place / "report.jsonl"
        env = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH")))),
            "PYTHONUNBUFFERED": "1",
            "COTENANT_REPORT": str(report),
            "COTENANT_SEGMENT": str(
                self._segments / f"{place.name if self._apart else program.name}.segment"
            ),
        }
        command = [self._python, str(program.path)]
        if class_ is not None:
            command = [*self._cotenant, "run", "--require", "--class", class_, "--", *command]
        begin = time.monotonic()
        with (place / "stdout").open("wb") as stdout, (place / "stderr").open("wb") as stderr:
            process = subprocess.Popen(
                command, env=env, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, process_group=0
            )
            status = self._wait(process)
        seconds = time.monotonic() - begin
        found = _evidence(place / "stdout")
        problem = ""
        if status is None:
            problem = f"ran past {self._limit:g} s"
        elif status != 0 or found is None:
            problem = f"exit status {status}: {_last_line(place / 'stderr')}"
        return Outcome(found, problem, round(seconds, 1), sum_counts(_reports(report)))

    def _wait(self, process: subprocess.Popen[bytes]) -> int | None:
        """The exit status, or None where the program had to be ended."""
        try:
            return process.wait(self._limit)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _say(self, program: Program, run: str, outcome: Outcome, said: str) -> None:
        counts = outcome.counts if run in CLASSES else {}
        counted = ", ".join(
            f"{name} {counts[name]}" for name in ("kernels", "graphs", "gates", "escaped") if counts
        )
        text = outcome.problem or said or "done"
        with self._printing:
            now = time.monotonic() - self._begin
            print(
                f"{now:6.1f} s  {program.name:26} {run:14} {outcome.seconds:6.1f} s  {text}  {counted}",
                flush=True,
            )


def _evidence(stdout: Path) -> dict[str, Any] | None:
    for line in reversed(stdout.read_text(errors="replace").splitlines()):
        if line.startswith(evidence.MARK):
            found = json.loads(line.removeprefix(evidence.MARK))
            return found if isinstance(found, dict) else None
    return None


def _reports(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _last_line(stderr: Path) -> str:
    lines = stderr.read_text(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else "nothing on stderr"


def machine() -> str:
    """GPU and driver in words, for the head of the table."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        found = subprocess.run(
            query, capture_output=True, text=True, timeout=30, check=True
        ).stdout.splitlines()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return "GPU unknown (no nvidia-smi)"
    name, driver = (part.strip() for part in found.split(",", 1))
    return f"{name}, driver {driver}, Python {sys.version.split()[0]}, {time.strftime('%Y-%m-%d')}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="this program (repeatable)"
    )
    parser.add_argument(
        "--output", type=output_files.argument, help="write the table: .json with every detail, or .md"
    )
    parser.add_argument("--markdown", type=Path, metavar="PAGE", help="rewrite the table in this page")
    parser.add_argument("--jobs", type=int, default=4, help="programs at a time (default 4)")
    parser.add_argument("--limit", type=float, default=150.0, help="seconds one run may take (default 150)")
    parser.add_argument("--apart", action="store_true", help="a segment for each run: nobody is held back")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the programs")
    parser.add_argument(
        "--cotenant", default=shlex.join([sys.executable, "-m", "cotenant"]), help="the command under test"
    )
    parser.add_argument("--programs", type=Path, default=HERE / "programs", help=argparse.SUPPRESS)
    parser.add_argument("--keep", type=Path, help="a new folder for the programs' output, kept")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    chosen = programs(options.programs, options.only)
    with contextlib.ExitStack() as stack:
        # In memory: the segment's pages are registered with the driver.
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        segments = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="cotenant-coverage-", dir=memory))
        )
        folder = segments
        if options.keep:
            options.keep.mkdir(parents=True)
            folder = options.keep.resolve()
        runner = Runner(
            options.python, shlex.split(options.cotenant), folder, segments, options.limit, options.apart
        )
        with ThreadPoolExecutor(max(1, options.jobs)) as pool:
            rows = list(pool.map(runner.row, chosen))
    rows.sort(key=lambda row: row.program)
    table = as_markdown(rows, machine())
    print("\n" + table)
    if options.output:
        detail = json.dumps(as_json(rows, machine()), indent=2) + "\n"
        options.output.write_text(table if options.output.suffix == ".md" else detail)
    if options.markdown:
        options.markdown.write_text(with_table(options.markdown.read_text(), table))
    failed = [row.program for row in rows if not row.passed]
    skipped = sum(1 for row in rows if row.plain.skipped)
    print(
        f"{len(rows) - len(failed) - skipped} same, {skipped} skipped, {len(failed)} failed {' '.join(failed)}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
