from __future__ import annotations

import subprocess
from pathlib import Path

from tests.compiling import compile_program


def test_longer_slices_are_tried_where_nothing_ends_and_kept_where_they_help(tmp_path: Path) -> None:
    program = compile_program(tmp_path, "tests/admission/standstill.cpp")
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
