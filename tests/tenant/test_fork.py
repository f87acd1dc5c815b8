"""Around a fork every room is told once, in the order that native/tenant/fork.h writes down; so it is in the child of a
bare clone, for which the C library tells nobody."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.compiling import compile_program


def test_rooms_are_told_of_a_fork_in_order(tmp_path: Path) -> None:
    program = compile_program(tmp_path, "tests/tenant/fork.cpp", "native/tenant/fork.cpp")
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
