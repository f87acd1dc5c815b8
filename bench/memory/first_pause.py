"""What the first pause of a job takes, when its host memory has to be had, and the next two, when it is there.

python bench/memory/first_pause.py                                   # four jobs of 20 GiB, one after another
cotenant softgpu -- python bench/memory/first_pause.py --mib 256     # tries it out
"""

from __future__ import annotations

import argparse
import sys
import time

try:
    from jobs import Job, Setting, measure_prepared, parallel, parser_with_commands

    from cotenant.tenants import pausing
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
    parser.add_argument("--jobs", type=int, default=4, help="default 4")
    return parser.parse_args()


def pauses(setting: Setting, job: Job) -> list[float]:
    found = []
    for _ in range(PAUSES):
        began = time.monotonic()
        pausing.pause(setting.segment(), job.pid)
        found.append(time.monotonic() - began)
        pausing.resume(setting.segment(), job.pid, SECONDS)
    return found


def measure(setting: Setting, options: argparse.Namespace) -> None:
    print("| first, s | second | third |\n| --: | --: | --: |")
    for _ in range(options.jobs):
        job = setting.start("copies_jobs", "opportunistic", "hold", options.mib)
        with parallel([job]):
            job.wait_for("ready", SECONDS)
            print(f"| {' | '.join(f'{took:.2f}' for took in pauses(setting, job))} |", flush=True)
            job.finish(SECONDS)


if __name__ == "__main__":
    sys.exit(measure_prepared(measure, arguments(), ENVIRONMENT))
