"""Into what a copy between host and GPU is split, as pure arithmetic."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.compiling import compile_program


def test_pieces(tmp_path: Path) -> None:
    program = compile_program(tmp_path, "tests/admission/bus.cpp")
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
