"""What the first pause of a job takes, and the next two: at once, and after its host memory is ready.

python bench/memory/first_pause.py                                   # four jobs of 20 GiB, one after another
cotenant softgpu -- python bench/memory/first_pause.py --mib 256     # tries it out

The kernel needs longer for fresh pages than the GPU for copying to them; later pauses use them again.
"""

from __future__ import annotations

import argparse
import sys
import time

try:
    from jobs import Job, Setting, measure_prepared, parallel, parser_with_commands

    from cotenant import holding
except ImportError as missing:
    raise SystemExit(
        f"error: {missing}\nhint: run this in a Python that has cotenant and cuda-bindings"
    ) from None

ENVIRONMENT = {"COTENANT_NO_DAEMON": "1"}
SECONDS = 60.0
PAUSES = 3


def arguments() -> argparse.Namespace:
    parser = parser_with_commands(__doc__ or "")
    parser.add_argument("--mib", type=int, default=20480, help="of each job; default 20480")
    parser.add_argument("--jobs", type=int, default=4, help="every second is paused at once; default 4")
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


if __name__ == "__main__":
    sys.exit(measure_prepared(measure, arguments(), ENVIRONMENT))
