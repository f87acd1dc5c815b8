"""Waiting for a state that must come; how soon does not matter."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest


def wait_for(what: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            pytest.fail("it did not happen in time")
        time.sleep(0.005)
