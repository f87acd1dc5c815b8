"""The array of what a process holds (native/tenant/growing_array.h): what was added and not removed, in its order."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.compiling import compile_program


def test_it_is_what_a_vector_is_and_stays_as_it_was_without_memory(tmp_path: Path) -> None:
    program = compile_program(tmp_path, "tests/tenant/growing_array.cpp")
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
