from __future__ import annotations

import subprocess
from pathlib import Path

from tests.compiling import compile_program


def test_streams_that_wait_for_each_other_are_found(tmp_path: Path) -> None:
    program = compile_program(tmp_path, "tests/tenant/linked_streams.cpp")
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
