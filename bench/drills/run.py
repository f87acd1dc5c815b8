"""Drills: what a killed, stopped or leaving process, a lost daemon and a damaged segment do to the others.

    python bench/drills/run.py                                    # all, about two minutes; needs a GPU
    cotenant softgpu --device h200 -- python bench/drills/run.py  # on the software GPU
    python bench/drills/run.py --only 'production killed'

A production job (60 requests a second of 20 kernels of 200 us) and an opportunistic one (kernels of 500 us) share the
GPU under `cotenant run`. Each drill has processes and a segment of its own. A job is well when it ended by itself with
exit status 0, the GPU executed everything it launched exactly once, and its memory held what it wrote. The table
has each job's steps a second, median step and longest time without a step, before and after the damage. The exit status
is 1 when a job that was not the victim came to harm.
"""

from __future__ import annotations

import argparse
import json
import sys

try:
    from catalogue import DRILLS
    from staging import HERE, Fate, Shape, perform

    from cotenant import output_files
    from cotenant.demo.rounds import private_folder, worker_environment
    from cotenant.demo.workers import Worker
    from cotenant.errors import Problem, narrate, unknown
except ImportError as missing:
    raise SystemExit(f"error: {missing}\nhint: run this in a Python that has cotenant[demo]") from None

HEAD = (
    "| drill | job | ended | results | steps/s before, after | step ms before, after "
    "| longest without a step, ms: before, from then on |\n"
    "| --- | --- | --- | --- | --- | --- | --- |"
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", metavar="DRILL", help="this one; may be repeated")
    parser.add_argument("--seconds", type=float, default=2.0, help="before and after the damage; default 2")
    parser.add_argument(
        "--mib", type=int, default=0, help="of the opportunistic job; default 8192, on the software GPU 64"
    )
    parser.add_argument("--output", type=output_files.argument, metavar="FILE.json")
    options = parser.parse_args()
    for name in options.only or ():
        if name not in DRILLS:
            raise unknown("drill", name, DRILLS)
    return options


def calibrated() -> tuple[float, str, bool]:
    """How much work a microsecond is, by a job that has the GPU to itself; the GPU's name; whether it is software."""
    with private_folder() as folder:
        job = Worker(
            "calibration", [sys.executable, str(HERE / "job.py")], worker_environment(folder), folder
        )
        try:
            said = job.answer()
        finally:
            job.end()
    return said["work_per_us"], said["gpu"], said["software_gpu"]


def row(name: str, fate: Fate) -> str:
    cells = [
        name,
        fate.tenant_class,
        fate.ending,
        fate.results,
        "{:.1f}, {:.1f}".format(*fate.per_second),
        "{:.2f}, {:.2f}".format(*fate.service_ms),
        "{:.0f}, {:.0f}".format(*fate.longest_gap_ms),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> int:
    options = arguments()
    calibration, gpu, software = calibrated()
    shapes = {
        "production": Shape.of(20, 200.0, 60.0, 16),
        "opportunistic": Shape.of(40, 500.0, 0.0, options.mib or (64 if software else 8192)),
        "standard": Shape.of(1, 100.0, 10.0, 0),
    }
    print(f"{gpu}\n\n{HEAD}", flush=True)
    found, harmed = [], []
    for name in options.only or DRILLS:
        try:
            done, fates, complaints = perform(DRILLS[name], calibration, shapes, options.seconds)
        except Problem as problem:
            harmed.append(f"{name}: {problem.message}")
            continue
        for number, fate in enumerate(fates):
            print(row(f"**{name}**: {done}" if number == 0 else "", fate), flush=True)
            found.append({"drill": name, "done": done, **vars(fate)})
            if not fate.is_well:
                harmed.append(
                    f"{name}: the {fate.tenant_class} job ended with {fate.ending}, results {fate.results}"
                )
        harmed += [f"{name}: {complaint}" for complaint in complaints]
    if options.output:
        options.output.write_text(
            json.dumps({"gpu": gpu, "drills": found, "harmed": harmed}, indent=2) + "\n"
        )
    for line in harmed:
        narrate(f"error: {line}")
    return 1 if harmed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Problem as problem:
        narrate(f"error: {problem.message}" + (f"\nhint: {problem.hint}" if problem.hint else ""))
        sys.exit(problem.status)
