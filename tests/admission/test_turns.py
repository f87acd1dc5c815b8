"""Whose turn it is among equals, as pure arithmetic: one is next, and somebody always may start when nobody is on."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.compiling import compile_program


def test_turns(tmp_path: Path) -> None:
    program = compile_program(tmp_path, "tests/admission/turns.cpp")
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
