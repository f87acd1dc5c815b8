"""What the interposer adds to one kernel launch.

Instructions: counted by valgrind's callgrind on the software GPU, so the figures repeat on any machine. A launch is
counted from the program's call to its return, with and without the interposer; "added" leaves the driver's own function
out exactly, by what callgrind booked for the call into it.
Nanoseconds: on a real GPU, if there is one; through the interposer and past it in turns in one process, median of the
differences with its 95 % interval.

    make bench-launch
    python bench/launch/run.py [-o FILE.json]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import callgrind

from cotenant import driver, parts, segment

MOST_INSTRUCTIONS = 300
MOST_NANOSECONDS = 100
CLASSES = ("production", "standard", "opportunistic")
STREAMS = ("own", "legacy")


def interposed(tenant_class: str, folder: Path, driver_file: Path) -> dict[str, str]:
    path = folder / "segment"
    segment.ensure(path)
    return {
        "LD_PRELOAD": str(parts.shim()),
        "COTENANT_DRIVER": str(driver_file),
        "COTENANT_SEGMENT": str(path),
        "COTENANT_CLASS": tenant_class,
    }


def count_instructions(stream: str, folder: Path, extra: dict[str, str]) -> tuple[float, float]:
    """Instructions of a launch as the program sees it, and of the driver's part in it."""
    output = folder / "callgrind.out"
    env = os.environ | {"COTENANT_SOFTGPU": "small", "COTENANT_SOFTGPU_DIR": str(folder)} | extra
    env["LD_LIBRARY_PATH"] = str(parts.softgpu())
    command = [
        "valgrind",
        "-q",
        "--tool=callgrind",
        f"--callgrind-out-file={output}",
        "--toggle-collect=probe_through",
    ]
    done = subprocess.run(
        [*command, str(parts.probe()), "--batches", "4", "--stream", stream],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"error: the probe failed under valgrind: {done.stderr.strip()}")
    edges = callgrind.read_edges(output.read_text().splitlines())
    launches = callgrind.total(edges, out_of="probe_through")
    if not launches.calls:
        raise SystemExit(f"error: callgrind saw no launch in {parts.probe()}: has it lost its symbols?")
    # The trampoline that the program calls has the same name as the driver's function: tell them apart by library.
    into_driver = {
        edge: cost
        for edge, cost in edges.items()
        if Path(edge.callee.object).parent.name == "softgpu" and edge.caller.object != edge.callee.object
    }
    in_driver = callgrind.total(into_driver, into="cuLaunchKernel")
    return launches.instructions / launches.calls, in_driver.instructions / launches.calls


def measure_instructions(classes: Sequence[str]) -> list[dict[str, Any]]:
    rows = []
    for stream in STREAMS:
        with tempfile.TemporaryDirectory(prefix="cotenant-") as name:
            alone, _ = count_instructions(stream, Path(name), {})
        for tenant_class in classes:
            with tempfile.TemporaryDirectory(prefix="cotenant-") as name:
                folder = Path(name)
                extra = interposed(tenant_class, folder, parts.softgpu() / "libcuda.so.1")
                launch, in_driver = count_instructions(stream, folder, extra)
            rows.append(
                {
                    "class": tenant_class,
                    "stream": stream,
                    "without": round(alone),
                    "with": round(launch),
                    "added": round(launch - in_driver),
                }
            )
            print(
                f"  {tenant_class:14} {stream:8} {alone:8.0f} {launch:8.0f} {launch - in_driver:8.0f}",
                flush=True,
            )
    return rows


def measure_nanoseconds(driver_file: Path, classes: Sequence[str]) -> list[dict[str, Any]]:
    rows = []
    for stream in STREAMS:
        for tenant_class in classes:
            with tempfile.TemporaryDirectory(prefix="cotenant-", dir="/dev/shm") as name:
                env = os.environ | interposed(tenant_class, Path(name), driver_file)
                done = subprocess.run(
                    [str(parts.probe()), "--batches", "400", "--stream", stream],
                    env=env,
                    capture_output=True,
                    text=True,
                    timeout=120,
                    check=True,
                )
            row: dict[str, Any] = {"class": tenant_class, **json.loads(done.stdout)}
            rows.append(row)
            print(
                f"  {tenant_class:14} {stream:8} {row['ns_direct']:8.0f} {row['ns_per_launch']:8.0f}"
                f" {row['ns_added']:8.0f}"
                f"   [{row['ns_added_low']:.0f}, {row['ns_added_high']:.0f}]",
                flush=True,
            )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, help="write the figures as JSON here")
    parser.add_argument("--class", dest="only", choices=CLASSES, help="measure this one only")
    options = parser.parse_args()
    classes = [options.only] if options.only else CLASSES
    result: dict[str, Any] = {}
    broken = []

    if shutil.which("valgrind"):
        print(
            "instructions a launch on the software GPU (callgrind)\n"
            "  class          stream    without     with    added"
        )
        result["instructions"] = measure_instructions(classes)
        for row in result["instructions"]:
            if row["class"] == "production" and row["added"] > MOST_INSTRUCTIONS:
                broken.append(
                    f"a production launch adds {row['added']} instructions, more than {MOST_INSTRUCTIONS}"
                )
    else:
        print(
            "valgrind is not installed (Debian: apt-get install valgrind): no instruction counts",
            file=sys.stderr,
        )

    try:
        found = driver.find(os.environ)
    except driver.NoDriver:
        found = None
    if found is None or parts.is_softgpu(found):
        print("no NVIDIA GPU: no nanoseconds", file=sys.stderr)
    else:
        print("nanoseconds a launch\n  class          stream    without     with    added   [95 % interval]")
        result["nanoseconds"] = measure_nanoseconds(found, classes)
        for row in result["nanoseconds"]:
            if row["class"] == "production" and row["ns_added_low"] > MOST_NANOSECONDS:
                broken.append(
                    f"a production launch adds {row['ns_added']:.0f} ns, more than {MOST_NANOSECONDS}"
                )
    if options.output:
        options.output.write_text(json.dumps(result, indent=2) + "\n")
    for line in broken:
        print(f"error: {line}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
