"""An attribute is asked of the driver once a device, and any number of threads get the same answer."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.compiling import compile_program, cuda_headers


def test_a_device_is_asked_once(tmp_path: Path) -> None:
    program = compile_program(tmp_path, "tests/tenant/device_attributes.cpp", headers=cuda_headers())
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
