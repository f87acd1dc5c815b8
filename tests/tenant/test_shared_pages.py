"""Pages that allocations share (native/tenant/memory/shared_pages.h): never less is counted than the driver has."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.compiling import compile_program


def test_pages_are_counted_while_the_driver_has_them(tmp_path: Path) -> None:
    program = compile_program(tmp_path, "tests/tenant/shared_pages.cpp")
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
