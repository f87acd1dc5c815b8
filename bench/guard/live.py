"""How guard converges after a neighbour arrives, leaves and changes: converge.py's picture, from this machine's GPU.

    python bench/guard/live.py guard-live.png                       # 50 s; needs a GPU and cotenant[demo]
    python bench/guard/live.py guard-live.png --ticks ticks.jsonl   # --draw: again, from the file alone
    cotenant softgpu -- python bench/guard/live.py guard-live.png

A production job (requests of 1.4 ms, 150 a second, a promise of 10 %) and neighbours of short and long kernels come
and go as in converge.py, in a segment of their own. The daemon's policy is guard, which also writes down what it sees.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from converge import PROMISE, Tick, draw, show

HERE = Path(__file__).resolve().parent
COTENANT = [sys.executable, "-m", "cotenant"]
SECONDS = 40.0
# Name, length of its kernels in us, from when to when.
NEIGHBOURS = (
    ("short-kernels", 100.0, 4.0, 14.0),
    ("long-kernels", 3000.0, 16.0, 26.0),
    ("short-kernels-again", 100.0, 29.0, SECONDS),
)
KERNELS, KERNEL_US, RATE = 14, 100.0, 150.0
PATIENCE_SECONDS = 60.0


def serve(seconds: float) -> None:
    from cotenant.demo.arrivals import poisson_arrivals
    from cotenant.demo.spin import SpinGpu

    gpu = SpinGpu()
    gpu.calibrate()
    print(gpu.work_per_us, flush=True)
    sys.stdin.readline()
    began = time.monotonic()
    for arrival in poisson_arrivals(RATE, seconds, 1):
        time.sleep(max(0.0, began + arrival - time.monotonic()))
        gpu.submit_burst(KERNELS, KERNEL_US)
        gpu.synchronise()


def fill(kernel_us: float, work_per_us: float) -> None:
    """Until it is told to end: a request of 40 ms after the other, two of them queued."""
    from cotenant.demo.spin import SpinGpu

    is_over: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: is_over.append(1))
    print("ready", flush=True)
    if not sys.stdin.readline():
        return
    gpu = SpinGpu()  # from now on it is a tenant
    gpu.work_per_us = work_per_us
    events = [gpu.new_event(), gpu.new_event()]
    turn = 0
    while not is_over:
        gpu.submit_burst(max(1, round(40_000 / kernel_us)), kernel_us)
        gpu.record(events[turn % 2])
        if turn:
            gpu.wait(events[(turn + 1) % 2])
        turn += 1
    gpu.synchronise()


class Jobs:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self._all: list[subprocess.Popen[str]] = []

    def start(self, *command: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        job = subprocess.Popen(
            [*COTENANT, *command], env=self.environment, stdin=pipe, stdout=pipe, text=True
        )
        self._all.append(job)
        return job

    def run(self, name: str, *words: str) -> tuple[subprocess.Popen[str], str]:
        """A tenant that is ready, and what it has said."""
        own = [sys.executable, str(Path(__file__).resolve())]
        options, role = words[:-3], words[-3:]
        job = self.start("run", "--require", "--name", name, *options, "--", *own, *role)
        assert job.stdout
        said = job.stdout.readline().strip()
        if not said:
            raise SystemExit(f"error: {name} did not start")
        return job, said

    def end(self) -> None:
        for job in self._all:
            if job.poll() is None:
                job.terminate()
        for job in self._all:
            with contextlib.suppress(subprocess.TimeoutExpired):
                job.communicate(timeout=20)
            if job.poll() is None:
                job.kill()


def go(job: subprocess.Popen[str]) -> None:
    assert job.stdin
    job.stdin.write("\n")
    job.stdin.flush()


def measure(folder: Path, ticks: Path, scale: float) -> None:
    ticks.write_text("")
    own = {
        "COTENANT_SEGMENT": str(folder / "segment"),
        "CONVERGE_TICKS": str(ticks.absolute()),
        "COTENANT_SHARE": "turns",
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    jobs = Jobs(dict(os.environ) | own)
    try:
        jobs.start("daemon", "--policy", str(HERE / "watched.py"))
        promise = ("--class", "production", "--slowdown", f"{PROMISE:.0%}")
        service, work_per_us = jobs.run("service", *promise, "serve", str(SECONDS * scale), "0")
        ready = [
            jobs.run(name, "--class", "opportunistic", "fill", str(us), work_per_us)[0]
            for name, us, _, _ in NEIGHBOURS
        ]
        began = time.monotonic()
        go(service)
        for (_, _, begins_s, ends_s), job in zip(NEIGHBOURS, ready, strict=True):
            time.sleep(max(0.0, began + begins_s * scale - time.monotonic()))
            go(job)
            time.sleep(max(0.0, began + ends_s * scale - time.monotonic()))
            job.terminate()
        service.wait(PATIENCE_SECONDS)
    finally:
        jobs.end()


def read(file: Path) -> Iterator[Tick]:
    """From the moment on when production works."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    at_work = [line for line in lines if line["operations"] > lines[0]["operations"]]
    for line in at_work:
        yield Tick(
            **line
            | {"at_s": line["at_s"] - at_work[0]["at_s"], "here": frozenset(filter(None, line["here"]))}
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("picture", type=Path, help=".png, .pdf or .svg")
    parser.add_argument("--scale", type=float, default=1.0, help="of all times: 0.5 takes half as long")
    parser.add_argument("--ticks", type=Path, metavar="FILE", help="where what guard saw is kept")
    parser.add_argument("--draw", action="store_true", help="only draw what an earlier run kept in --ticks")
    asked = parser.parse_args()
    shared = Path("/dev/shm")  # a segment on a disk is refused
    with tempfile.TemporaryDirectory(
        prefix="cotenant-live-", dir=shared if shared.is_dir() else None
    ) as folder:
        kept = asked.ticks or Path(folder, "ticks")
        if not asked.draw:
            measure(Path(folder), kept, asked.scale)
        ticks = list(read(kept))
    if not ticks:
        raise SystemExit("error: guard saw nothing")
    show(ticks)
    try:
        draw(ticks, asked.picture)
    except ModuleNotFoundError as missing:
        kept_in = f"; --draw --ticks {asked.ticks} draws it elsewhere" if asked.ticks else ""
        print(f"no picture: {missing}{kept_in}", file=sys.stderr)


def role(words: Sequence[str]) -> None:
    if words[0] == "serve":
        serve(float(words[1]))
    else:
        fill(float(words[1]), float(words[2]))


if __name__ == "__main__":
    if sys.argv[1:2] in (["serve"], ["fill"]):
        role(sys.argv[1:])
    else:
        main()
