from __future__ import annotations

import subprocess
from pathlib import Path

from tests.compiling import compile_program


def test_slices_are_those_of_the_table(tmp_path: Path) -> None:
    program = compile_program(tmp_path, "tests/admission/time_slices.cpp")
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
