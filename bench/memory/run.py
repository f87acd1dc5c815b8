"""More memory than the GPU has: two trainings that do not fit together, and a production server that grows.

python bench/memory/run.py --python python3.12          # 24 GiB for all, two trainings of 20 GiB; about six minutes
cotenant softgpu -- python bench/memory/run.py --toy     # a MiB for a GiB: tries the benchmark itself out

The trainings take turns on the GPU, far shorter ones than they would by default, so that each is evicted often. Their
losses must be, to the last bit, those of the same trainings alone. The server was promised to be slowed down by no more
than 20 %, and grows several times meanwhile. Then each training is paused and resumed by hand, for the
bandwidth, beside that of a plain copy of pinned memory in the same run; and for what need not be copied: the first
leaves at the end of a step, the second amid one, and a third has no helper for PyTorch. Whatever fails, the figures
that are there are written; the exit status is then 1.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

try:
    from jobs import Job, Setting, parallel, parser_with_commands, prepared, say
    from moves import saw
    from report import PROMISE, as_markdown, into_page, promise_broken

    from cotenant import output_files, segment
    from cotenant.errors import Problem, narrate
    from cotenant.tenants import memory_knobs, pausing
except ImportError as missing:
    raise SystemExit(
        f"error: {missing}\nhint: run this in the Python that has cotenant; --python names the one that has PyTorch"
    ) from None

HOST_GIB = 64
BEGAN = time.monotonic()
GROWTHS, GROWTH_STEPS = 3, 10
BETWEEN_PAUSES = 5  # steps
PROGRESS_SECONDS = 15.0
START_SECONDS = 120.0


def progress(what: str) -> None:
    narrate(f"{time.monotonic() - BEGAN:5.0f} s  {what}")


def arguments() -> argparse.Namespace:
    parser = parser_with_commands(__doc__ or "")
    parser.add_argument("--capacity", type=int, default=24, metavar="GIB", help="what all share; default 24")
    parser.add_argument("--job", type=int, default=20, metavar="GIB", help="a training's size; default 20")
    parser.add_argument("--growth", type=int, default=10, metavar="GIB", help="of the server; default 10")
    parser.add_argument("--evictions", type=int, default=100, help="of each training at least; default 100")
    parser.add_argument("--seconds", type=float, default=300, help="for these at most; default 300")
    parser.add_argument("--stay", type=int, default=100, metavar="MS", help="of a turn; default 100 ms")
    parser.add_argument("--steps", type=int, default=150, help="of the trainings alone; default 150")
    parser.add_argument("--pauses", type=int, default=5, help="of each by hand; default 5")
    parser.add_argument("--toy", action="store_true", help="on the software GPU")
    parser.add_argument(
        "--output", type=output_files.argument, default="memory.json", help="default memory.json"
    )
    parser.add_argument("--markdown", type=Path, metavar="PAGE", help="rewrite the table in this page")
    return parser.parse_args()


def environment(options: argparse.Namespace) -> dict[str, str]:
    unit = "M" if options.toy else "G"
    return {
        "COTENANT_CAPACITY": f"{options.capacity}{unit}",
        "COTENANT_HOST_MEMORY": f"{HOST_GIB}{unit}" if not options.toy else "1G",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "PYTHONUNBUFFERED": "1",
    }


def alone_seconds(options: argparse.Namespace) -> float:
    """Of the server, before the trainings and after."""
    return 0.5 if options.toy else 5.0


def alone(setting: Setting, options: argparse.Namespace) -> list[list[str]]:
    """Both at once, but each with all the memory it wants: what they compute does not depend on who is beside them."""
    progress("the trainings alone")
    jobs = [
        setting.start("trainer", None, "--gib", options.job, "--seed", seed, "--steps", options.steps)
        for seed in (1, 2)
    ]
    with parallel(jobs):
        for job in jobs:
            job.finish(START_SECONDS + options.steps)
        return [job.losses() for job in jobs]


def together(
    setting: Setting,
    options: argparse.Namespace,
    server: Job,
    trainings: Sequence[Job],
    found: dict[str, Any],
) -> None:
    path = setting.segment()
    memory_knobs.change(path, memory_knobs.Change(stay_ms=options.stay))
    for job in trainings:
        job.wait_for("ready", START_SECONDS)
    found["helper"] = ["ready 1" in job.lines for job in trainings]
    progress("the trainings take turns")
    server.say("mark turns")
    began = shown = time.monotonic()
    before = [len(job.losses()) for job in trainings]
    grown = 0
    found["moves"] = []
    while (now := time.monotonic()) - began < options.seconds:
        tenants = {tenant.pid: tenant for tenant in segment.read(path).tenants}
        if gone := next((job for job in trainings if job.pid not in tenants), None):
            raise gone.problem("has ended")
        saw(found["moves"], now, [tenants[job.pid].where.name for job in trainings])
        left = [tenants[job.pid].evictions for job in trainings]
        bytes_now = sum(use.memory_bytes for one in tenants.values() for use in one.uses)
        found["seconds"], found["evictions"] = now - began, left
        found["most_bytes_at_once"] = max(found.get("most_bytes_at_once", 0), bytes_now)
        if now - shown > PROGRESS_SECONDS:
            shown = now
            progress(f"evictions: {left[0]} and {left[1]}")
        done = max(min(left) / options.evictions, (now - began) / options.seconds)
        if grown < GROWTHS and done > (grown + 1) / (GROWTHS + 1):
            grown += 1
            grow(server, options)
        if min(left) >= options.evictions and grown == GROWTHS:
            break
        time.sleep(0.005)
    found["steps"] = [len(job.losses()) - had for job, had in zip(trainings, before, strict=True)]
    for job in trainings:
        paused(path, job)
    progress("the server alone again")
    server.say("mark alone")
    time.sleep(alone_seconds(options))
    found["server"] = json.loads(server.finish(30)[-1])


def paused(path: Path, job: Job) -> segment.Tenant:
    """One whose work does not end in time goes on, and is asked once more."""
    try:
        return pausing.pause(path, job.pid)
    except pausing.Refused as refused:
        progress(f"again, since {refused.message}")
        return pausing.pause(path, job.pid)


def grow(server: Job, options: argparse.Namespace) -> None:
    progress("the server grows")
    server.say("mark growth")
    server.say(f"grow {options.growth} {GROWTH_STEPS}")
    server.wait_for("grown", 60)
    server.say("mark grown")
    time.sleep(0.2 if options.toy else 1)
    server.say("shrink")
    server.wait_for("shrunk", 30)
    server.say("mark turns")


def by_hand(setting: Setting, job: Job, options: argparse.Namespace) -> dict[str, Any]:
    """It has the GPU to itself, and is paused and resumed at one moment of a step or another."""
    path = setting.segment()
    chance = random.Random(1)
    samples = []
    for _ in range(options.pauses):
        pausing.resume(path, job.pid, 60)
        began = time.monotonic()
        job.wait_for_more_losses(BETWEEN_PAUSES, 60)
        time.sleep(chance.random() * (time.monotonic() - began) / BETWEEN_PAUSES)
        before = pausing.tenant_with(path, job.pid)
        began = time.monotonic()
        away = paused(path, job)
        seconds = time.monotonic() - began
        pausing.resume(path, job.pid, 60)
        back = pausing.tenant_with(path, job.pid)
        samples.append(
            {
                "pause_seconds": seconds,
                "bytes": away.host_bytes,
                "saved_bytes": away.saved_bytes - before.saved_bytes,
                "dropped_bytes": away.dropped_bytes - before.dropped_bytes,
                "eviction_seconds": back.eviction_ns / 1e9,
                "restore_seconds": (back.transfer_ns - back.eviction_ns) / 1e9,
            }
        )

    return {"samples": samples}


def pauses_of_two(
    setting: Setting, options: argparse.Namespace, jobs: Sequence[Job], found: dict[str, Any]
) -> None:
    path = setting.segment()
    first, second = jobs
    progress("pausing by hand: at the end of a step")
    paused(path, second)
    found["step_end"] = by_hand(setting, first, options)
    progress("pausing by hand: amid a step")
    paused(path, first)
    found["amid"] = by_hand(setting, second, options)
    pausing.resume(path, first.pid, 60)


def pauses_without_helper(setting: Setting, options: argparse.Namespace, found: dict[str, Any]) -> None:
    progress("pausing by hand: without the helper")
    job = setting.start("trainer", "opportunistic", "--gib", options.job, with_helper=False)
    with parallel([job]):
        job.wait_for("ready", START_SECONDS)
        found["no_helper"] = by_hand(setting, job, options)
        job.finish(60)


def compare(alone_losses: list[list[str]], jobs: Sequence[Job]) -> list[dict[str, Any]]:
    found = []
    for before, job in zip(alone_losses, jobs, strict=True):
        losses = job.losses()
        common = min(len(before), len(losses))
        found.append(
            {
                "steps": len(losses),
                "compared": common,
                "same": common > 0 and before[:common] == losses[:common],
            }
        )
    return found


def measure(setting: Setting, options: argparse.Namespace, found: dict[str, Any]) -> None:
    progress("a plain copy")
    found["copy"] = json.loads(setting.start("bandwidth", None).finish(START_SECONDS)[-1])
    losses = alone(setting, options)
    progress("the server alone")
    server = setting.start("server", "production", promise=PROMISE)
    with parallel([server]):
        server.wait_for("ready", START_SECONDS)
        time.sleep(alone_seconds(options))
        server.say("mark start")
        train_beside(server, setting, options, losses, found)
    pauses_without_helper(setting, options, found)


def train_beside(
    server: Job,
    setting: Setting,
    options: argparse.Namespace,
    losses: list[list[str]],
    found: dict[str, Any],
) -> None:
    progress("two trainings begin")
    size = ("--gib", options.job)
    jobs = [
        setting.start("trainer", "opportunistic", *size, "--seed", 1),
        setting.start("trainer", "opportunistic", *size, "--seed", 2, "--amid"),
    ]
    with parallel(jobs):
        try:
            together(setting, options, server, jobs, found)
            tenants = {tenant.pid: tenant for tenant in segment.read(setting.segment()).tenants}
            found["saved_bytes"] = [tenants[job.pid].saved_bytes for job in jobs]
            found["dropped_bytes"] = [tenants[job.pid].dropped_bytes for job in jobs]
            pauses_of_two(setting, options, jobs, found)
            for job in jobs:
                job.finish(60)
        finally:
            found["losses"] = compare(losses, jobs)


def shortcomings(options: argparse.Namespace, found: dict[str, Any]) -> list[str]:
    missed = []
    if min(found.get("evictions", [0])) < options.evictions:
        missed.append(
            f"fewer than the {options.evictions} evictions wanted of each, within {options.seconds:g} s"
        )
    if not all(one["same"] for one in found.get("losses", [{"same": False}])):
        missed.append("the losses are not those of the trainings alone")
    if not options.toy and not all(found.get("helper", [False])):
        missed.append("the helper for PyTorch was not in the trainings")
    if not options.toy and (broken := promise_broken(found)):
        missed.append(f"the server's promise was not kept: {', '.join(broken)}")
    return missed


def main() -> int:
    options = arguments()
    found: dict[str, Any] = {
        "capacity_gib": options.capacity,
        "job_gib": options.job,
        "growth_gib": options.growth,
        "toy": options.toy,
    }
    problems = []
    try:
        with prepared(options.python, options.cotenant, environment(options), options.toy) as setting:
            measure(setting, options, found)
    except Problem as problem:
        problems.append(problem.message)
        say(problem)
    except Exception as error:
        # Minutes on a GPU are not thrown away for a fault in what came last.
        problems.append(f"{type(error).__name__}: {error}")
        narrate(f"error: {problems[-1]}")
    found["problems"] = problems + shortcomings(options, found)
    options.output.write_text(json.dumps(found, indent=2) + "\n")
    print(as_markdown(found))
    if options.markdown:
        into_page(options.markdown, as_markdown(found))
    progress("done")
    return 1 if found["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
