"""The table of what a process holds (native/tenant/memory/table.h): what was entered and not taken is found."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.compiling import compile_program


def test_it_is_what_a_map_is(tmp_path: Path) -> None:
    program = compile_program(tmp_path, "tests/tenant/memory_table.cpp")
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
