"""What bench/pairs and bench/crowd have in common: options, how they end, and the head of a table."""

from __future__ import annotations

import argparse
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from pace import HURRIED, MEASURED

from cotenant.cli import INTERRUPTED
from cotenant.errors import Problem, narrate


def words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def positive(text: str) -> float:
    value = float(text)
    if not 0 < value < 3600:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 3600")
    return value


def at_least_one(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return value


def add_start(parser: argparse.ArgumentParser) -> None:
    """How jobs are started, and at what pace."""
    parser.add_argument("--python", default=shlex.quote(sys.executable), help="the interpreter with PyTorch")
    parser.add_argument(
        "--cotenant", default=shlex.join([sys.executable, "-m", "cotenant"]), help="the command under test"
    )
    parser.add_argument(
        "--hurry",
        dest="pace",
        action="store_const",
        default=MEASURED,
        const=HURRIED,
        help="nobody warms up: to see that it works, not to measure",
    )


def machine(about: dict[str, Any]) -> str:
    """GPU, driver and libraries in words, for the head of a table."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        found = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True).stdout.split()
        driver = [f"driver {found[0]}"] if found else []
    except (OSError, subprocess.SubprocessError):
        driver = []
    versions = [f"{name} {version}" for name, version in about.get("versions", {}).items()]
    return ", ".join([about["gpu"], *driver, *versions, time.strftime("%Y-%m-%d")])


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def status_of(run: Callable[[], int]) -> int:
    """Jobs and MPS are stopped on the way out, however we are asked to go."""
    signal.signal(signal.SIGTERM, interrupted)
    try:
        return run()
    except Problem as problem:
        narrate(f"error: {problem.message}" + (f"\nhint: {problem.hint}" if problem.hint else ""))
        return problem.status
    except KeyboardInterrupt:
        return INTERRUPTED
