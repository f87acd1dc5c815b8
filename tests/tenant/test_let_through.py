"""A gate that is open for somebody of the same process closes again, whatever becomes of who waited."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.compiling import compile_program, cuda_headers


def test_it_lasts_until_the_gpu_is_past_or_for_a_second(tmp_path: Path) -> None:
    program = compile_program(
        tmp_path, "tests/tenant/let_through.cpp", "native/tenant/progress.cpp", headers=cuda_headers()
    )
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
