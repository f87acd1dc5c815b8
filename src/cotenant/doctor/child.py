"""Runs a program for a check, and returns its output."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

PROBE_SECONDS = 120


def ended(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Raises TimeoutExpired, or OSError where it does not start."""
    return subprocess.run(
        command, check=False, env=dict(environment), capture_output=True, text=True, timeout=PROBE_SECONDS
    )


def last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""
