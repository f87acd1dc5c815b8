"""What a thread did between two waits for the GPU (native/tenant/own_time.h)."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.compiling import compile_program


def test_it_is_work_or_sleep_and_not_what_it_did_in_a_wait(tmp_path: Path) -> None:
    program = compile_program(tmp_path, "tests/tenant/own_time.cpp", "native/tenant/own_time.cpp")
    done = subprocess.run([program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
