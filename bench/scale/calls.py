"""What calls of one more tenant cost beside a crowd of idle ones, through the interposer and past it.

A launch, by the project's own probe; an operation before and after many streams were made and destroyed; and freeing
and allocating memory, many times (churn.py).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tenants import crowd

from cotenant.launch import native_files

CHURN = Path(__file__).resolve().parent / "churn.py"
LIMIT_SECONDS = 600.0


def measure(counts: Sequence[int], streams: int, allocations: int) -> list[dict[str, Any]]:
    found = []
    print("nanoseconds that the interposer adds (quartiles; of a launch its 95 % interval)")
    for count in counts:
        with crowd("file", count - 1) as (env, _):
            for tenant_class in ("production", "opportunistic"):
                mine = env | {"COTENANT_CLASS": tenant_class}
                row = {"tenants": count, "class": tenant_class} | all_of(mine, streams, allocations)
                found.append(row)
                print(in_words(row), flush=True)
    return found


def all_of(env: dict[str, str], streams: int, allocations: int) -> dict[str, Any]:
    churn = [sys.executable, str(CHURN)]
    return {
        "launch": said_by([str(native_files.probe()), "--batches", "60"], env),
        "streams": said_by([*churn, "streams", "--count", str(streams)], env),
        "allocations": said_by([*churn, "allocations", "--count", str(allocations)], env),
    }


def said_by(command: Sequence[str], env: dict[str, str]) -> dict[str, Any]:
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"error: {command[0]} failed: {done.stderr.strip()}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def in_words(row: dict[str, Any]) -> str:
    def added(one: dict[str, float]) -> str:
        return f"{one['added_ns']:.0f} [{one['added_low_ns']:.0f}, {one['added_high_ns']:.0f}]"

    launch, streams = row["launch"], row["streams"]
    return (
        f"{row['tenants']} tenants, {row['class']}: launch {launch['ns_added']:.0f}"
        f" [{launch['ns_added_low']:.0f}, {launch['ns_added_high']:.0f}];"
        f" operation {added(streams['operation_before'])}, after {streams['made_and_destroyed']} streams"
        f" {added(streams['operation_after'])}; free and allocate"
        f" {added(row['allocations']['free_and_allocate'])}"
    )
