"""More memory than the GPU has: two trainings that do not fit together, and a production server that grows.

python bench/memory/run.py --python python3.12          # 24 GiB for all, two trainings of 20 GiB; about three minutes
cotenant softgpu -- python bench/memory/run.py --toy     # a MiB for a GiB: tries the benchmark itself out

The trainings take turns on the GPU, far shorter ones than they would by default, so that each is evicted often. Their
losses must be, to the last bit, those of the same trainings alone. Then one is paused and resumed by hand, for the
bandwidth, beside that of a plain copy of pinned memory in the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

try:
    from jobs import Job, Setting, parallel
    from report import as_markdown, into_page

    from cotenant import crowding, holding, segment
    from cotenant.demo.rounds import private_folder, worker_environment
    from cotenant.errors import Problem, narrate
except ImportError as missing:
    raise SystemExit(
        f"error: {missing}\nhint: run this in the Python that has cotenant; --python names the one that has PyTorch"
    ) from None

HOST_GIB = 64
GROWTH_STEPS = 10
START_SECONDS = 120.0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--capacity", type=int, default=24, metavar="GIB", help="what all share; default 24")
    parser.add_argument("--job", type=int, default=20, metavar="GIB", help="a training's size; default 20")
    parser.add_argument("--growth", type=int, default=10, metavar="GIB", help="of the server; default 10")
    parser.add_argument("--evictions", type=int, default=100, help="of each training at least; default 100")
    parser.add_argument("--seconds", type=float, default=100, help="for these at most; default 100")
    parser.add_argument("--stay", type=int, default=100, metavar="MS", help="of a turn; default 100 ms")
    parser.add_argument("--steps", type=int, default=400, help="of the trainings alone; default 400")
    parser.add_argument("--pauses", type=int, default=5, help="by hand; default 5")
    parser.add_argument("--toy", action="store_true", help="on the software GPU")
    parser.add_argument("--output", type=Path, default=Path("memory.json"), help="default memory.json")
    parser.add_argument("--markdown", type=Path, metavar="PAGE", help="rewrite the table in this page")
    parser.add_argument("--python", default=shlex.quote(sys.executable), help="the interpreter with PyTorch")
    parser.add_argument("--cotenant", default=shlex.join([sys.executable, "-m", "cotenant"]))
    return parser.parse_args()


@contextmanager
def prepared(options: argparse.Namespace) -> Iterator[Setting]:
    with private_folder() as folder:
        unit = "M" if options.toy else "G"
        # For `import cotenant.torch` in the other interpreter; its own packages must stay its own.
        packages = folder / "packages"
        packages.mkdir()
        (packages / "cotenant").symlink_to(Path(segment.__file__).parent)
        environment = worker_environment(folder) | {
            "COTENANT_CAPACITY": f"{options.capacity}{unit}",
            "COTENANT_HOST_MEMORY": f"{HOST_GIB}{unit}" if not options.toy else "1G",
            "COTENANT_NO_DAEMON": "1",
            "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(packages)])),
        }
        yield Setting(
            shlex.split(options.python), shlex.split(options.cotenant), folder, environment, options.toy
        )


def alone(setting: Setting, options: argparse.Namespace) -> list[list[str]]:
    """Both at once, but each with all the memory it wants: what they compute does not depend on who is beside them."""
    narrate("the trainings alone")
    jobs = [
        setting.start("trainer", None, "--gib", options.job, "--seed", seed, "--steps", options.steps)
        for seed in (1, 2)
    ]
    with parallel(jobs):
        for job in jobs:
            job.finish(START_SECONDS + options.steps)
        return [job.losses() for job in jobs]


def together(setting: Setting, options: argparse.Namespace, found: dict[str, Any]) -> list[Job]:
    path = setting.segment()
    trainings = [
        setting.start("trainer", "opportunistic", "--gib", options.job, "--seed", seed) for seed in (1, 2)
    ]
    server = setting.start("server", "production")
    with parallel([server]):
        server.wait_for("ready", START_SECONDS)
        crowding.change(path, crowding.Change(stay_ms=options.stay))
        for job in trainings:
            job.wait_for("ready", START_SECONDS)
        narrate("the trainings take turns")
        server.say("mark turns")
        began = time.monotonic()
        grown = False
        most = 0
        while time.monotonic() - began < options.seconds:
            tenants = {tenant.pid: tenant for tenant in segment.read(path).tenants}
            left = [tenants[job.pid].times_left for job in trainings]
            most = max(most, sum(use.memory_bytes for one in tenants.values() for use in one.uses))
            if not grown and (
                min(left) >= options.evictions // 2 or time.monotonic() - began > options.seconds / 2
            ):
                grown = True
                grow(server, options)
            if min(left) >= options.evictions and grown:
                break
            time.sleep(0.005)
        found["seconds"] = time.monotonic() - began
        found["evictions"] = left
        found["most_bytes_at_once"] = most
        found["server"] = json.loads(server.finish(30)[-1])
    return trainings


def grow(server: Job, options: argparse.Namespace) -> None:
    narrate("the server grows")
    server.say("mark growth")
    server.say(f"grow {options.growth} {GROWTH_STEPS}")
    server.wait_for("grown", 60)
    server.say("mark grown")
    time.sleep(1)
    server.say("shrink")
    server.wait_for("shrunk", 30)
    server.say("mark after")


def by_hand(setting: Setting, jobs: Sequence[Job], options: argparse.Namespace) -> dict[str, Any]:
    """The other one away, the first is paused and resumed; both go on afterwards."""
    narrate("pausing by hand")
    path = setting.segment()
    first, second = jobs
    holding.pause(path, second.pid)
    samples = []
    for _ in range(options.pauses):
        holding.resume(path, first.pid, 60)
        # Some work of its own in between, so that a pause finds it in the middle of a step.
        first.wait_for_more_losses(10, 30)
        before = holding.tenant_with(path, first.pid)
        began = time.monotonic()
        away = holding.pause(path, first.pid)
        seconds = time.monotonic() - began
        saved = away.saved_bytes - before.saved_bytes
        holding.resume(path, first.pid, 60)
        back = holding.tenant_with(path, first.pid)
        samples.append(
            {
                "pause_seconds": seconds,
                "bytes": away.host_bytes,
                "saved_bytes": saved,
                "dropped_bytes": away.dropped_bytes - before.dropped_bytes,
                "leaving_seconds": back.leaving_ns / 1e9,
                "returning_seconds": (back.transfer_ns - back.leaving_ns) / 1e9,
            }
        )
    holding.resume(path, second.pid, 60)
    return {
        "samples": samples,
        "pause_seconds": statistics.median(one["pause_seconds"] for one in samples),
        "to_host": statistics.median(one["saved_bytes"] / one["leaving_seconds"] / 1e9 for one in samples),
        "to_gpu": statistics.median(one["saved_bytes"] / one["returning_seconds"] / 1e9 for one in samples),
    }


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


def main() -> int:
    options = arguments()
    found: dict[str, Any] = {
        "capacity_gib": options.capacity,
        "job_gib": options.job,
        "growth_gib": options.growth,
        "toy": options.toy,
    }
    try:
        with prepared(options) as setting:
            found["copy"] = json.loads(setting.start("bandwidth", None).finish(START_SECONDS)[-1])
            losses = alone(setting, options)
            jobs = together(setting, options, found)
            with parallel(jobs):
                found["by_hand"] = by_hand(setting, jobs, options)
                tenants = {tenant.pid: tenant for tenant in segment.read(setting.segment()).tenants}
                found["saved_bytes"] = [tenants[job.pid].saved_bytes for job in jobs]
                found["dropped_bytes"] = [tenants[job.pid].dropped_bytes for job in jobs]
                for job in jobs:
                    job.finish(60)
            found["losses"] = compare(losses, jobs)
    except Problem as problem:
        narrate(f"error: {problem.message}" + (f"\nhint: {problem.hint}" if problem.hint else ""))
        return 1
    options.output.write_text(json.dumps(found, indent=2) + "\n")
    print(as_markdown(found))
    if options.markdown:
        into_page(options.markdown, as_markdown(found))
    return 0 if all(one["same"] for one in found["losses"]) else 1


if __name__ == "__main__":
    sys.exit(main())
