"""Which captures are open, by themselves."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.compiling import compile_program, cuda_headers


def test_a_stream_has_one_capture_at_a_time_which_forbids_what_cuda_says(tmp_path: Path) -> None:
    program = compile_program(
        tmp_path, "tests/tenant/captures.cpp", "native/tenant/captures.cpp", headers=cuda_headers()
    )
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
