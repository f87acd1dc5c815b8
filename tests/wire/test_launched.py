"""What tenants say of what they have launched."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.compiling import WIRE, compile_program


def test_what_tenants_have_launched_is_summed_and_garbage_does_no_harm(tmp_path: Path) -> None:
    program = compile_program(tmp_path, "tests/wire/launched.cpp", *WIRE)
    command = [str(program), str(tmp_path / "segment"), "sums"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stderr) == (0, "")
