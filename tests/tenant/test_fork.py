"""Around a fork every room is told once, in the order that native/tenant/fork.h writes down; so it is in the child of a
bare clone, for which the C library tells nobody."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compiling import compile_program
from tests.waiting import PATIENCE


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return compile_program(tmp_path, "tests/tenant/fork.cpp", "native/tenant/fork.cpp")


def test_rooms_are_told_of_a_fork_in_order(program: Path) -> None:
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=60 * PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (0, "")
