"""Waiting for a state that must come; how soon does not matter."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest

# Factor of the time limits, for a machine that is emulated: COTENANT_TEST_PATIENCE.
PATIENCE = float(os.environ.get("COTENANT_TEST_PATIENCE") or 1)
# For what never comes. On a busy machine the scheduler has kept whole sessions of processes waiting for 10 s, the
# software GPU's among them.
LONGEST_SECONDS = 120


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONGEST_SECONDS * PATIENCE
    while not what():
        if time.monotonic() > deadline:
            pytest.fail("it did not happen in time")
        time.sleep(0.005)
