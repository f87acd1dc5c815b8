"""What the first pause of a job takes, and the next two: at once, and after its host memory is ready.

python bench/memory/first_pause.py                                   # four jobs of 20 GiB, one after another
cotenant softgpu -- python bench/memory/first_pause.py --mib 256     # tries it out

The kernel needs longer for fresh pages than the GPU for copying to them; later pauses use them again.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time

try:
    from jobs import Job, Setting, parallel, prepared

    from cotenant import holding
    from cotenant.errors import Problem, narrate
except ImportError as missing:
    raise SystemExit(
        f"error: {missing}\nhint: run this in a Python that has cotenant and cuda-bindings"
    ) from None

ENVIRONMENT = {"COTENANT_NO_DAEMON": "1"}
SECONDS = 60.0
PAUSES = 3


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mib", type=int, default=20480, help="of each job; default 20480")
    parser.add_argument("--jobs", type=int, default=4, help="every second is paused at once; default 4")
    parser.add_argument("--python", default=shlex.quote(sys.executable), help="the interpreter of the jobs")
    parser.add_argument("--cotenant", default=shlex.join([sys.executable, "-m", "cotenant"]))
    return parser.parse_args()


def pauses(setting: Setting, job: Job) -> list[float]:
    found = []
    for _ in range(PAUSES):
        began = time.monotonic()
        holding.pause(setting.segment(), job.pid)
        found.append(time.monotonic() - began)
        holding.resume(setting.segment(), job.pid, SECONDS)
    return found


def measure(setting: Setting, options: argparse.Namespace) -> None:
    print("| paused | first, s | second | third |\n| --- | --: | --: | --: |")
    for number in range(options.jobs):
        job = setting.start("copies_jobs", "opportunistic", "hold", options.mib)
        with parallel([job]):
            job.wait_for("ready", SECONDS)
            began = time.monotonic()
            when = "at once"
            if not number % 2:
                if not setting.wait_until_ready(job, SECONDS):
                    raise job.problem("has no host memory ready: is a quarter of the machine's free?")
                when = f"{time.monotonic() - began:.1f} s after it had its memory"
            print(f"| {when} | {' | '.join(f'{took:.2f}' for took in pauses(setting, job))} |", flush=True)
            job.finish(SECONDS)


def main() -> int:
    options = arguments()
    try:
        with prepared(options.python, options.cotenant, ENVIRONMENT) as setting:
            measure(setting, options)
    except Problem as problem:
        narrate(f"error: {problem.message}" + (f"\nhint: {problem.hint}" if problem.hint else ""))
        return problem.status
    return 0


if __name__ == "__main__":
    sys.exit(main())
