"""Which job runs when: rounds of short windows, interleaved, so that a drift of the machine affects all phases alike.

    alone      production
    shared     production + opportunistic, with the driver's own time slices
    cotenant   production + opportunistic, both under `cotenant run`
    solo       opportunistic

The four processes live through all rounds and idle outside their windows. Within a round the windows see the same
arrivals; from round to round their order changes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from cotenant.demo import opportunistic
from cotenant.demo.figures import PHASES, Measurement, Samples
from cotenant.demo.orders import Answer, Order
from cotenant.demo.stillness import Stillness
from cotenant.demo.workers import Worker, worker_command
from cotenant.errors import Problem
from cotenant.launch.preload import without_shims

SOFTGPU_DEVICE = "h200"
ROUND_SECONDS = 10.0
WARM_UP_SECONDS = 0.5
REMOVAL_SECONDS = 5.0
_SOLO = "solo"
# A solo window is shorter than the others: a closed loop's rate is known sooner than an open loop's tail.
_WEIGHTS = {"alone": 1.0, "shared": 1.0, "cotenant": 1.0, _SOLO: 0.4}
# From sending an order to its window's start: the opportunistic job's lead and time for the order to arrive.
_NOTICE_SECONDS = opportunistic.LEAD_SECONDS + 0.1
_MODULES = {"production": "cotenant.demo.production", "opportunistic": "cotenant.demo.opportunistic"}

Narrate = Callable[[str, float], None]  # what begins now, and how many of the seconds are behind us


@dataclasses.dataclass(frozen=True)
class Window:
    phase: str
    seconds: float
    seed: int


def plan(seconds: float) -> list[list[Window]]:
    """Rounds of windows whose lengths add up to `seconds`."""
    rounds = max(1, round(seconds / ROUND_SECONDS))
    unit = seconds / rounds / sum(_WEIGHTS.values())
    phases = list(_WEIGHTS)
    planned = []
    for number in range(rounds):
        turned = phases[number % len(phases) :] + phases[: number % len(phases)]
        planned.append([Window(phase, unit * _WEIGHTS[phase], seed=number + 1) for phase in turned])
    return planned


@dataclasses.dataclass(frozen=True)
class Crew:
    """The four processes: each job plainly, and each under Cotenant."""

    production: Worker
    opportunistic: Worker
    production_run: Worker
    opportunistic_run: Worker
    ready: Answer

    def of(self, phase: str) -> list[Worker]:
        return {
            "alone": [self.production],
            "shared": [self.production, self.opportunistic],
            "cotenant": [self.production_run, self.opportunistic_run],
            _SOLO: [self.opportunistic],
        }[phase]


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """Where the demo's own segment, software GPU and logs lie: it meets no other tenant of this machine."""
    memory = Path("/dev/shm")
    place = memory if os.access(memory, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="cotenant-demo-", dir=place))
    try:
        yield folder
    finally:
        remove(folder)


def remove(folder: Path) -> None:
    """The segment's daemon may write there once more before it sees that the segment has gone."""
    deadline = time.monotonic() + REMOVAL_SECONDS
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists() or time.monotonic() > deadline:
            return
        time.sleep(0.01)


def worker_environment(folder: Path) -> dict[str, str]:
    """The caller's, without what steers `cotenant run`: the demo says all of that itself."""
    steering = ("LD_PRELOAD", "COTENANT_CLASS", "COTENANT_GPU", "COTENANT_DRY_RUN", "COTENANT_SOFTGPU_LIST")
    env = {name: value for name, value in os.environ.items() if name not in steering}
    others = without_shims(os.environ.get("LD_PRELOAD"))
    if others:
        env["LD_PRELOAD"] = ":".join(others)
    env["COTENANT_SEGMENT"] = str(folder / "segment")
    env["COTENANT_SOFTGPU_DIR"] = str(folder / "softgpu")
    return env


@contextlib.contextmanager
def crew(folder: Path, software: bool | None, narrate: Narrate) -> Iterator[Crew]:
    """Starts the four processes and ends them, whatever happens. `software` None: as this machine is."""
    env = worker_environment(folder)
    workers: list[Worker] = []

    def start(job: str, class_: str | None, device: str | None, *options: str) -> Worker:
        title = f"{job} (under Cotenant)" if class_ else job
        workers.append(Worker(title, worker_command(_MODULES[job], class_, device, *options), env, folder))
        return workers[-1]

    try:
        narrate("starting the jobs", 0.0)
        # The first one is alone on the GPU, so it can tell how much work a microsecond is.
        device = SOFTGPU_DEVICE if software else None
        first = start("production", None, device)
        try:
            ready = first.answer()
        except Problem as problem:
            if software is not None:
                raise
            reason = problem.message.splitlines()[-1].strip()
            narrate(f"no NVIDIA GPU found, the demo uses the software GPU ({reason})", 0.0)
            device = SOFTGPU_DEVICE
            first = start("production", None, device)
            ready = first.answer()
        calibration = ("--work-per-us", repr(float(ready["work_per_us"])))
        everyone = Crew(
            ready=ready,
            production=first,
            opportunistic=start("opportunistic", None, device, *calibration),
            production_run=start("production", "production", device, *calibration),
            opportunistic_run=start("opportunistic", "opportunistic", device, *calibration),
        )
        for worker in (everyone.opportunistic, everyone.production_run, everyone.opportunistic_run):
            worker.answer()
        yield everyone
    finally:
        for worker in workers:
            worker.ask_to_end()
        for worker in workers:
            worker.end()


def run_window(workers: Sequence[Worker], window: Window) -> Samples:
    order = Order(time.monotonic() + _NOTICE_SECONDS, window.seconds, window.seed)
    for worker in workers:
        worker.order(order)
    samples = Samples(seconds=window.seconds)
    for worker in workers:
        answer = worker.answer(window.seconds)
        done, counted = answer["done"], answer["counted_by_gpu"]
        if counted != done:
            raise Problem(f"the {worker.title} job did {done} bursts, but the GPU counted {counted}")
        samples.latencies_ms += answer.get("latencies_ms", [])
        samples.services_ms += answer.get("services_ms", [])
        samples.steps += answer.get("steps", 0.0)
    return samples


def measure(seconds: float, software: bool | None, narrate: Narrate) -> Measurement:
    planned = plan(seconds)
    gathered = {phase: Samples() for phase in (*PHASES, _SOLO)}
    load_average = os.getloadavg()[0]
    behind = 0.0
    with private_folder() as folder, crew(folder, software, narrate) as staff, Stillness() as stillness:
        narrate("warming up", 0.0)
        for phase in gathered:
            run_window(staff.of(phase), Window(phase, WARM_UP_SECONDS, seed=0))
        for number, windows in enumerate(planned, start=1):
            for window in windows:
                narrate(f"round {number} of {len(planned)}: {_DESCRIPTIONS[window.phase]}", behind)
                stillness.take()
                samples = run_window(staff.of(window.phase), window)
                total = gathered[window.phase]
                total.stalls_ms += stillness.take()
                total.latencies_ms += samples.latencies_ms
                total.services_ms += samples.services_ms
                total.steps += samples.steps
                total.seconds += window.seconds
                behind += window.seconds
        narrate("done", seconds)
    for phase in PHASES:
        if not gathered[phase].latencies_ms:
            raise Problem("no request arrived in the time given", "give more --seconds")
    return Measurement(
        gpu=staff.ready["gpu"],
        software_gpu=staff.ready["software_gpu"],
        driver_version=staff.ready["driver_version"],
        phases={phase: gathered[phase] for phase in PHASES},
        opportunistic_alone=gathered[_SOLO],
        rounds=len(planned),
        load_average=load_average,
    )


_DESCRIPTIONS = {
    "alone": "production alone",
    "shared": "both, shared without Cotenant",
    "cotenant": "both, shared with Cotenant",
    _SOLO: "opportunistic alone",
}
