"""Namespaces for tests; what unshare may not do here skips them."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

import pytest


def skip_unless_allowed(unshare: Sequence[str], kinds: str) -> None:
    try:
        done = subprocess.run([*unshare, "true"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no unshare command")
    if done.returncode != 0:
        pytest.skip(f"no {kinds} namespaces here: {done.stderr.strip()}")
