"""What the interposer adds to one kernel launch.

Instructions: counted one by one (steps.py) on a driver whose launches do nothing (never_done.c), through the interposer
and past it, so the figures repeat on any machine, busy or not.
Nanoseconds: on a real GPU, if there is one; through the interposer and past it in turns in one process, median of the
differences with its 95 % interval.
With --timeline both are measured a second time while a timeline is recorded (`cotenant timeline`).

    make bench-launch
    python bench/launch/run.py [-o FILE.json] [--timeline]
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

import steps

from cotenant import output_files, segment
from cotenant.launch import driver, native_files

HERE = Path(__file__).resolve().parent
LAUNCHES_IN_A_BATCH = 256  # kBatch in native/probe/probe.cpp
MOST_INSTRUCTIONS = 300
MOST_NANOSECONDS = 100
CLASSES = ("production", "standard", "opportunistic")
STREAMS = ("own", "legacy")


def interposed(tenant_class: str, folder: Path, driver_file: Path, ring: str) -> dict[str, str]:
    path = folder / "segment"
    segment.ensure(path)
    return {
        **({"COTENANT_TIMELINE_RING": ring} if ring else {}),
        "LD_PRELOAD": str(native_files.shim()),
        "COTENANT_DRIVER": str(driver_file),
        "COTENANT_SEGMENT": str(path),
        "COTENANT_CLASS": tenant_class,
    }


def compile_driver(folder: Path) -> Path:
    """The driver whose launches do nothing, in front of the software GPU."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        raise steps.CannotStep("there is no C compiler (Debian: apt-get install gcc)")
    # What is linked with it goes by its path: by the name libcuda.so.1 the loader would find the interposer.
    by_path, made = folder / "by_path.so", folder / "never_done.so"
    softgpu = native_files.softgpu() / driver.LIBRARY
    options = ["-O1", "-shared", "-fPIC", "-Wl,--no-as-needed"]
    subprocess.run(
        [compiler, *options, "-x", "c", os.devnull, f"-Wl,-soname,{softgpu}", "-o", by_path], check=True
    )
    subprocess.run([compiler, *options, HERE / "never_done.c", by_path, "-ldl", "-o", made], check=True)
    return made


def count_instructions(stream: str, tenant_class: str, ring: str) -> float:
    """Instructions that the interposer adds to a launch: through it less past it, a mean over a batch."""
    with tempfile.TemporaryDirectory(prefix="cotenant-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        env = os.environ | {"COTENANT_SOFTGPU": "small", "COTENANT_SOFTGPU_DIR": str(folder)}
        env |= interposed(tenant_class, folder, compile_driver(folder), ring)
        command = [str(native_files.probe()), "--batches", "1", "--stream", stream, "--stops"]
        through, direct = steps.between_stops(command, env, counts=2)
    return (through - direct) / LAUNCHES_IN_A_BATCH


def measure_instructions(classes: Sequence[str], ring: str) -> list[dict[str, Any]]:
    rows = []
    for stream in STREAMS:
        for tenant_class in classes:
            added = count_instructions(stream, tenant_class, ring)
            rows.append({"class": tenant_class, "stream": stream, "added": round(added)})
            print(f"  {tenant_class:14} {stream:8} {added:8.0f}", flush=True)
    return rows


def measure_nanoseconds(driver_file: Path, classes: Sequence[str], ring: str) -> list[dict[str, Any]]:
    rows = []
    for stream in STREAMS:
        for tenant_class in classes:
            with tempfile.TemporaryDirectory(prefix="cotenant-", dir="/dev/shm") as name:
                env = os.environ | interposed(tenant_class, Path(name), driver_file, ring)
                done = subprocess.run(
                    [str(native_files.probe()), "--batches", "400", "--stream", stream],
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


def measure(result: dict[str, Any], classes: Sequence[str], ring: str, ending: str) -> list[str]:
    """Adds the figures; returns which of them are too high."""
    broken = []
    print("instructions that a launch takes longer\n  class          stream      added")
    instructions, nanoseconds = f"instructions{ending}", f"nanoseconds{ending}"
    try:
        result[instructions] = measure_instructions(classes, ring)
    except steps.CannotStep as problem:
        print(f"no instruction counts: {problem}", file=sys.stderr)
    for row in result.get(instructions, []):
        if row["class"] == "production" and row["added"] > MOST_INSTRUCTIONS:
            broken.append(
                f"a production launch adds {row['added']} instructions, more than {MOST_INSTRUCTIONS}"
            )

    try:
        found = driver.find(os.environ)
    except driver.NoDriver:
        found = None
    if found is None or native_files.is_softgpu(found):
        print("no NVIDIA GPU: no nanoseconds", file=sys.stderr)
        return broken
    print("nanoseconds a launch\n  class          stream    without     with    added   [95 % interval]")
    result[nanoseconds] = measure_nanoseconds(found, classes, ring)
    for row in result[nanoseconds]:
        if row["class"] == "production" and row["ns_added_low"] > MOST_NANOSECONDS:
            broken.append(f"a production launch adds {row['ns_added']:.0f} ns, more than {MOST_NANOSECONDS}")
    return broken


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=output_files.argument, help="write the figures as JSON here")
    parser.add_argument("--class", dest="only", choices=CLASSES, help="measure this one only")
    parser.add_argument("--timeline", action="store_true", help="also while a timeline is recorded")
    options = parser.parse_args()
    classes = [options.only] if options.only else CLASSES
    result: dict[str, Any] = {}
    broken = measure(result, classes, "", "")
    if options.timeline:
        print("while a timeline is recorded:")
        broken += measure(result, classes, "1M", "_with_timeline")
    if options.output:
        options.output.write_text(json.dumps(result, indent=2) + "\n")
    for line in broken:
        print(f"error: {line}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
