"""What production's copies take while another job is evicted, while it is out of the GPU, and while it is restored.

python bench/memory/copies.py                                    # a job of 16 GiB is evicted and restored seven times
cotenant softgpu -- python bench/memory/copies.py --mib 256      # tries it out

The copy engines of a GPU serve all its jobs, and know nothing of classes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

try:
    from jobs import Job, Setting, measure_prepared, parallel, parser_with_commands

    from cotenant.demo.figures import percentile
    from cotenant.tenants import pausing
except ImportError as missing:
    raise SystemExit(
        f"error: {missing}\nhint: run this in a Python that has cotenant and cuda-bindings"
    ) from None

ENVIRONMENT = {"COTENANT_NO_DAEMON": "1", "COTENANT_OVERSUBSCRIBE": "1"}
START_SECONDS = 60.0
BETWEEN_SECONDS = 0.1
WARM_UPS = 2  # host memory is pinned at the first


def arguments() -> argparse.Namespace:
    parser = parser_with_commands(__doc__ or "")
    parser.add_argument("--mib", type=int, default=16384, help="of the job that moves; default 16384")
    parser.add_argument("--times", type=int, default=7, help="that it is evicted; default 7")
    return parser.parse_args()


Spans = dict[str, list[tuple[float, float]]]


def move(setting: Setting, mover: Job, times: int) -> tuple[Spans, list[float], list[float]]:
    """When it was on its way, and how long it took to leave and to return."""
    path = setting.segment()
    spans: Spans = {"eviction": [], "evicted": [], "restore": []}
    evictions, restores = [], []
    for number in range(WARM_UPS + times):
        began = time.monotonic()
        pausing.pause(path, mover.pid)
        gone = time.monotonic()
        time.sleep(BETWEEN_SECONDS)
        set_out = time.monotonic()
        pausing.resume(path, mover.pid, START_SECONDS)
        back = time.monotonic()
        time.sleep(BETWEEN_SECONDS)
        if number < WARM_UPS:
            continue
        for what, span in zip(spans, ((began, gone), (gone, set_out), (set_out, back)), strict=True):
            spans[what].append(span)
        tenant = pausing.tenant_with(path, mover.pid)
        evictions.append(tenant.eviction_ns / 1e9)
        restores.append((tenant.transfer_ns - tenant.eviction_ns) / 1e9)
    return spans, evictions, restores


def measure(setting: Setting, options: argparse.Namespace) -> None:
    mover = setting.start("copies_jobs", "opportunistic", "hold", options.mib)
    copier = setting.start("copies_jobs", "production", "copy")
    with parallel([mover, copier]):
        for job in (mover, copier):
            job.wait_for("ready", START_SECONDS)
        spans, evictions, restores = move(setting, mover, options.times)
        samples = json.loads(copier.finish(START_SECONDS)[-1])
        mover.finish(START_SECONDS)
    lines = [
        "| while | copy | times | p50, ms | p90 | p99 | max |",
        "| --- | --- | --: | --: | --: | --: | --: |",
    ]
    for what, when in spans.items():
        took: dict[str, list[float]] = {}
        for began, copy, seconds in samples:
            if any(a <= began <= b for a, b in when):
                took.setdefault(copy, []).append(1000 * seconds)
        for copy, all_ms in took.items():
            figures = " | ".join(f"{percentile(all_ms, p):.3f}" for p in (50, 90, 99, 100))
            lines.append(f"| {what} | {copy} | {len(all_ms)} | {figures} |")
    for name, seconds in (("eviction", evictions), ("restore", restores)):
        rate = options.mib * 2**20 / percentile(seconds, 50) / 1e9
        lines.append(f"\n{name}: {percentile(seconds, 50):.2f} s, {rate:.1f} GB/s (median of {len(seconds)})")
    print("\n".join(lines))


if __name__ == "__main__":
    sys.exit(measure_prepared(measure, arguments(), ENVIRONMENT))
