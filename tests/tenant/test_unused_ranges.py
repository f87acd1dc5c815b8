"""What the mover is told of memory that the program does not use, by itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.compiling import compile_program, cuda_headers


def test_an_answer_that_comes_too_late_changes_nothing(tmp_path: Path) -> None:
    program = compile_program(
        tmp_path,
        "tests/tenant/unused_ranges.cpp",
        "native/tenant/memory/unused_ranges.cpp",
        "native/wire/clock.cpp",
        headers=cuda_headers(),
    )
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
