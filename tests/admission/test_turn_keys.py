"""The keys by which equals are ordered, as pure arithmetic: claims and debts are bounded."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.compiling import compile_program


def test_turn_keys(tmp_path: Path) -> None:
    program = compile_program(tmp_path, "tests/admission/turn_keys.cpp")
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
