"""The machine's clock, whatever clock a process has."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compiling import compile_program

NO_NAMESPACE = 77


@pytest.fixture
def clock(tmp_path: Path) -> Path:
    return compile_program(tmp_path, "tests/wire/clock.cpp", "native/wire/clock.cpp")


def test_a_forked_child_asks_for_its_own_shift(clock: Path) -> None:
    done = subprocess.run([str(clock)], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == NO_NAMESPACE:
        pytest.skip("no time namespaces here")
    assert (done.returncode, done.stderr) == (0, "")
